//! `#[torchrs::main]`: the user's `main` becomes an inner function, and a new `main` calls
//! `torchrs::init()` before it and hands its result to `torchrs::multiprocessing::report::finish`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemFn, Result, parse2};

/// The expansion, or an error at the part of the function that is in the way.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !arguments.is_empty() {
        return Err(Error::new_spanned(arguments, "#[torchrs::main] takes no arguments"));
    }
    let function: ItemFn = parse2(item).map_err(|e| {
        Error::new(
            e.span(),
            "#[torchrs::main] goes on a function: `fn main() -> torchrs::Result<()>`",
        )
    })?;
    let signature = &function.sig;
    if signature.ident != "main" {
        return Err(Error::new_spanned(
            &signature.ident,
            "#[torchrs::main] goes on the program's `main` function",
        ));
    }
    if let Some(asyncness) = &signature.asyncness {
        return Err(Error::new_spanned(
            asyncness,
            "#[torchrs::main] takes no `async fn`: children are started before any runtime is",
        ));
    }
    if !signature.inputs.is_empty() {
        return Err(Error::new_spanned(
            &signature.inputs,
            "`main` takes no arguments; read the command line with std::env::args()",
        ));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(&signature.generics, "`main` cannot be generic"));
    }
    let (attributes, visibility, output) = (&function.attrs, &function.vis, &signature.output);
    let body = &function.block;
    Ok(quote! {
        #(#attributes)*
        #visibility fn main() -> ::std::process::ExitCode {
            fn main() #output #body
            ::torchrs::init();
            ::torchrs::multiprocessing::report::finish(main())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(item: TokenStream) -> String {
        expand(TokenStream::new(), item).unwrap_err().to_string()
    }

    #[test]
    fn init_comes_before_the_users_code() {
        let item = quote!(
            fn main() -> Result<(), String> {
                run()
            }
        );
        let text = expand(TokenStream::new(), item).unwrap().to_string();
        assert!(text.contains("fn main () -> Result < () , String > { run () }"), "{text}");
        let (init, main) = (text.find("init ()").unwrap(), text.find("main ())").unwrap());
        assert!(init < main, "{text}");
    }

    #[test]
    fn what_cannot_be_a_main_is_refused_with_the_reason() {
        assert!(
            message(quote!(
                async fn main() {}
            ))
            .contains("async")
        );
        assert!(
            message(quote!(
                fn main(x: u8) {}
            ))
            .contains("no arguments")
        );
        assert!(
            message(quote!(
                fn run() {}
            ))
            .contains("`main`")
        );
        assert!(
            message(quote!(
                fn main<T>() {}
            ))
            .contains("generic")
        );
        assert!(
            message(quote!(
                struct Main;
            ))
            .contains("goes on a function")
        );
        let error = expand(
            quote!(threads = 2),
            quote!(
                fn main() {}
            ),
        )
        .unwrap_err();
        assert!(error.to_string().contains("takes no arguments"));
    }
}
