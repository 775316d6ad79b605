//! `#[nn::forward]`: a module's `forward` that says when it begins and ends, with its inputs and outputs.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, FnArg, Ident, Pat, Result, ReturnType, Signature, Visibility, parse2};

/// A method, of which the body is left as it is.
struct Method {
    attributes: Vec<Attribute>,
    visibility: Visibility,
    signature: Signature,
    body: Group,
}

impl Parse for Method {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (attributes, visibility) = (input.call(Attribute::parse_outer)?, input.parse()?);
        let (signature, body) = (input.parse()?, input.parse::<Group>()?);
        if body.delimiter() != Delimiter::Brace {
            return Err(Error::new(body.span(), "expected a body in braces"));
        }
        Ok(Method { attributes, visibility, signature, body })
    }
}

/// The expansion, or an error at the part of the function that is in the way.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !arguments.is_empty() {
        return Err(Error::new_spanned(arguments, "#[nn::forward] takes no arguments"));
    }
    let method: Method = parse2(item).map_err(|e| {
        Error::new(
            e.span(),
            "#[nn::forward] goes on a method: `fn forward(&self, x: &Tensor) -> Tensor`",
        )
    })?;
    let Method { attributes, visibility, signature, body } = &method;
    if let Some(asyncness) = &signature.asyncness {
        return Err(Error::new_spanned(asyncness, "#[nn::forward] takes no `async fn`"));
    }
    let receiver = match signature.receiver() {
        Some(receiver) if is_shared(&receiver.to_token_stream()) => receiver,
        _ => {
            let message = "#[nn::forward] goes on a method of a module that takes `&self`";
            return Err(Error::new_spanned(signature, message));
        }
    };
    let this = receiver.self_token;
    let mut inputs = Vec::new();
    for argument in &signature.inputs {
        if let FnArg::Typed(argument) = argument {
            names(&argument.pat, &mut inputs);
        }
    }
    let typed = match &signature.output {
        ReturnType::Type(_, ty) if !mentions(&ty.to_token_stream(), &["impl"]) => quote! { : #ty },
        _ => TokenStream::new(),
    };
    // A body that may end before its end becomes a closure's.
    let leaves_early = mentions(&body.stream(), &["return"]) || asks(&body.stream());
    let value = match (&signature.output, leaves_early) {
        (_, false) => quote! { #body },
        (ReturnType::Type(_, ty), true) if !typed.is_empty() => quote! { (|| -> #ty #body)() },
        (_, true) => quote! { (|| #body)() },
    };
    Ok(quote! {
        #(#attributes)*
        #visibility #signature {
            let __torchrs_call = ::torchrs::nn::calls::enter(#this);
            if __torchrs_call.is_logged() {
                #[allow(unused_imports)]
                use ::torchrs::nn::calls::{ViaNothing as _, ViaShown as _};
                __torchrs_call.inputs(::std::vec![
                    #((&::torchrs::nn::calls::Probe(&#inputs)).shown()),*
                ]);
            }
            let __torchrs_output #typed = #value;
            if __torchrs_call.is_logged() {
                #[allow(unused_imports)]
                use ::torchrs::nn::calls::{ViaNothing as _, ViaShown as _};
                __torchrs_call.output((&::torchrs::nn::calls::Probe(&__torchrs_output)).shown());
            }
            __torchrs_output
        }
    })
}

/// `&self`, with or without a lifetime.
fn is_shared(receiver: &TokenStream) -> bool {
    let tokens: Vec<String> = receiver.clone().into_iter().map(|token| token.to_string()).collect();
    tokens.first().is_some_and(|first| first == "&") && !tokens.iter().any(|token| token == "mut")
}

/// The names that a pattern binds, of those that may be a tensor or a tuple of them.
fn names(pattern: &Pat, found: &mut Vec<Ident>) {
    match pattern {
        Pat::Ident(pattern) => found.push(pattern.ident.clone()),
        Pat::Tuple(pattern) => pattern.elems.iter().for_each(|part| names(part, found)),
        Pat::Reference(pattern) => names(&pattern.pat, found),
        _ => {}
    }
}

fn mentions(tokens: &TokenStream, words: &[&str]) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => mentions(&group.stream(), words),
        TokenTree::Ident(ident) => words.iter().any(|word| ident == word),
        _ => false,
    })
}

/// Whether there is a `?`.
fn asks(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => asks(&group.stream()),
        TokenTree::Punct(punct) => punct.as_char() == '?',
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(item: TokenStream) -> String {
        expand(TokenStream::new(), item).unwrap_err().to_string()
    }

    #[test]
    fn what_it_cannot_stand_on_is_named() {
        assert!(message(quote! { struct Net; }).contains("goes on a method"));
        assert!(
            message(quote! { fn forward(x: &Tensor) -> Tensor { x } }).contains("takes `&self`")
        );
        assert!(message(quote! { fn forward(&mut self) {} }).contains("takes `&self`"));
        assert!(message(quote! { async fn forward(&self) {} }).contains("async"));
        let arguments = expand(quote! { depth = 1 }, quote! { fn forward(&self) {} });
        assert!(arguments.unwrap_err().to_string().contains("no arguments"));
    }

    #[test]
    fn all_names_of_the_arguments_are_shown_and_only_early_ends_need_a_closure() {
        let text = |body: TokenStream| {
            let item =
                quote! { fn forward(&self, x: &Tensor, (a, _): (&Tensor, u8)) -> Tensor #body };
            expand(TokenStream::new(), item).unwrap().to_string()
        };
        let plain = text(quote! {{ x + a }});
        assert!(plain.contains("Probe (& x)") && plain.contains("Probe (& a)"), "{plain}");
        assert!(!plain.contains("||"), "{plain}");
        assert!(text(quote! {{ if a { return x; } a }}).contains("(|| -> Tensor"));
        assert!(text(quote! {{ Some(x)? }}).contains("(|| -> Tensor"));
    }
}
