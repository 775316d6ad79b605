//! Procedural macros of torchrs: `#[torchrs::main]`, `#[derive(Module)]` and `#[nn::forward]`.

mod forward_attr;
mod main_attr;
mod module;

use proc_macro::TokenStream;

/// Makes a `main` that prepares the process (`torchrs::init()`) and reports how it failed.
///
/// For `fn main()` and `fn main() -> Result<(), E>`, where `E` converts into `Box<dyn Error>`. An
/// error is printed as `Error: message` with its sources, written to the file that
/// `TORCHELASTIC_ERROR_FILE` names (the launcher's report), and makes the exit code 1.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    main_attr::expand(arguments.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Makes a struct or an enum a `torchrs::nn::Module`; see there.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(item: TokenStream) -> TokenStream {
    syn::parse(item).and_then(module::expand).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a module's `forward` say when it begins and ends, with its inputs and its outputs.
///
/// Without it a struct of one's own works as well; with it
/// [`summary`](https://docs.rs/torchrs/latest/torchrs/nn/fn.summary.html) has the shapes that its forward takes and
/// gives, a profile and a count of operations have its name, and errors inside it say in which module they were. It
/// goes on any method that takes `&self`, in an `impl` of the type or of a trait. While nobody looks it costs what a
/// module of torchrs costs: some nanoseconds.
///
/// ```text
/// impl Forward for Net {
///     #[nn::forward]
///     fn forward(&self, x: &Tensor) -> Tensor {
///         self.fc2.forward(&self.fc1.forward(x).relu())
///     }
/// }
/// ```
#[proc_macro_attribute]
pub fn forward(arguments: TokenStream, item: TokenStream) -> TokenStream {
    forward_attr::expand(arguments.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
