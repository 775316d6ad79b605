//! `#[derive(Module)]`: writes `visit`, `visit_mut` and `name` from a type's fields. Which fields
//! are visited is left to their types (see `nn::field` in torchrs).

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Expr, Field, Fields, LitStr, Member, Result};

/// What `#[module(...)]` says on the type.
#[derive(Default)]
struct TypeOptions {
    /// A literal, or a method.
    name: Option<Expr>,
    extra_repr: Option<Expr>,
}

/// What `#[module(...)]` says on a field.
#[derive(Default)]
struct FieldOptions {
    rename: Option<LitStr>,
    skip: bool,
}

pub fn expand(input: DeriveInput) -> Result<TokenStream> {
    let options = type_options(&input)?;
    let bodies = match &input.data {
        Data::Struct(data) => struct_bodies(&data.fields)?,
        Data::Enum(data) => enum_bodies(&input, data)?,
        Data::Union(_) => return Err(Error::new_spanned(&input, "a union cannot be a module")),
    };
    let Bodies { visit, visit_mut } = bodies;
    let ident = &input.ident;
    let name = match options.name {
        None => ident.unraw().to_string().into_token_stream(),
        Some(Expr::Lit(literal)) => literal.into_token_stream(),
        Some(method) => quote! { (#method)(self) },
    };
    let extra_repr = options.extra_repr.map(|method| {
        quote! {
            fn extra_repr(&self) -> ::std::string::String {
                (#method)(self)
            }
        }
    });
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::torchrs::nn::Module for #ident #type_generics #where_clause {
            #[allow(unused_variables, unused_imports)]
            fn visit<'torchrs>(
                &'torchrs self,
                visitor: &mut dyn ::torchrs::nn::Visitor<'torchrs>,
            ) {
                use ::torchrs::nn::field::{
                    ViaField as _, ViaIndirect as _, ViaLoose as _, ViaPlain as _,
                };
                #visit
            }
            #[allow(unused_variables, unused_imports)]
            fn visit_mut(&mut self, visitor: &mut dyn ::torchrs::nn::VisitorMut) {
                use ::torchrs::nn::field::{ViaFieldMut as _, ViaPlainMut as _};
                #visit_mut
            }
            fn name(&self) -> &str {
                #name
            }
            #extra_repr
        }
    })
}

struct Bodies {
    visit: TokenStream,
    visit_mut: TokenStream,
}

fn struct_bodies(fields: &Fields) -> Result<Bodies> {
    let (mut visit, mut visit_mut) = (TokenStream::new(), TokenStream::new());
    for (i, field) in fields.iter().enumerate() {
        let options = field_options(field)?;
        if options.skip {
            continue;
        }
        let member = match &field.ident {
            Some(ident) => Member::Named(ident.clone()),
            None => Member::from(i),
        };
        let name = match (&options.rename, &field.ident) {
            (Some(name), _) => name.value(),
            (None, Some(ident)) => ident.unraw().to_string(),
            (None, None) => i.to_string(),
        };
        // At the field's place, for the error that says that its type is no module.
        let span = field.ty.span();
        visit.extend(quote_spanned! {span=>
            (&&&::torchrs::nn::field::Probe(&self.#member)).visit(#name, visitor);
        });
        visit_mut.extend(quote_spanned! {span=>
            (&mut ::torchrs::nn::field::ProbeMut(&mut self.#member)).visit_mut(#name, visitor);
        });
    }
    Ok(Bodies { visit, visit_mut })
}

/// Each variant holds one module, which is visited in the enum's place.
fn enum_bodies(input: &DeriveInput, data: &syn::DataEnum) -> Result<Bodies> {
    if data.variants.is_empty() {
        return Err(Error::new_spanned(input, "an enum without variants cannot be a module"));
    }
    let (mut visit, mut visit_mut) = (TokenStream::new(), TokenStream::new());
    for variant in &data.variants {
        let Fields::Unnamed(fields) = &variant.fields else {
            return Err(one_module(variant));
        };
        if fields.unnamed.len() != 1 {
            return Err(one_module(variant));
        }
        let (ident, inner) = (&variant.ident, format_ident!("inner"));
        visit.extend(quote! {
            Self::#ident(#inner) => ::torchrs::nn::Module::visit(#inner, visitor),
        });
        visit_mut.extend(quote! {
            Self::#ident(#inner) => ::torchrs::nn::Module::visit_mut(#inner, visitor),
        });
    }
    Ok(Bodies {
        visit: quote! { match self { #visit } },
        visit_mut: quote! { match self { #visit_mut } },
    })
}

fn one_module(variant: &syn::Variant) -> Error {
    Error::new_spanned(
        variant,
        "each variant of a module holds exactly one module: `Variant(SomeModule)`",
    )
}

fn type_options(input: &DeriveInput) -> Result<TypeOptions> {
    let mut options = TypeOptions::default();
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                options.name = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("extra_repr") {
                options.extra_repr = Some(meta.value()?.parse()?);
            } else {
                return Err(meta.error("expected `name = \"...\"` or `extra_repr = Self::method`"));
            }
            Ok(())
        })?;
    }
    Ok(options)
}

fn field_options(field: &Field) -> Result<FieldOptions> {
    let mut options = FieldOptions::default();
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("skip") {
                options.skip = true;
            } else if meta.path.is_ident("rename") {
                let name: LitStr = meta.value()?.parse()?;
                if name.value().is_empty() || name.value().contains('.') {
                    return Err(meta.error("a name is not empty and has no dot"));
                }
                options.rename = Some(name);
            } else {
                return Err(meta.error("expected `skip` or `rename = \"...\"`"));
            }
            Ok(())
        })?;
    }
    Ok(options)
}
