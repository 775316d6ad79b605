//! Procedural macros of torchrs: `#[torchrs::main]` and `#[derive(Module)]`.

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
