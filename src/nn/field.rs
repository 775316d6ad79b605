//! How `#[derive(Module)]` tells a module's fields apart, by their types and not by attributes:
//! a type that is a [`Field`] is visited, a type that holds no parameters is plain and skipped, and
//! anything between (a struct with parameters that is not a module) does not compile.
//!
//! The choice is made by method resolution: on `&Probe<T>` the method of [`ViaField`] is found
//! first if `T: Field`, else the one of [`ViaPlain`], which is one reference further away.

use std::marker::PhantomData;

use super::{Buffer, Module, Parameter, StatisticsGroup, Training, Visitor, VisitorMut};

/// A field that a module's visitors see: a parameter, a buffer, the training flag, a module, or an
/// option of these.
///
/// ```
/// use torchrs::{Tensor, nn::{Field, Module, Parameter}};
/// // The modules that are lists are those of fields.
/// fn names(fields: Vec<impl Field>) -> Vec<String> {
///     fields.named_parameters().into_iter().map(|(name, _)| name).collect()
/// }
/// let parameter = || Parameter::new(Tensor::from([1f32]));
/// assert_eq!(names(vec![parameter(), parameter()]), ["0", "1"]);
/// ```
pub trait Field: Send + Sync {
    /// Shows this field to `visitor` as `name`.
    fn visit_field<'a>(&'a self, name: &str, visitor: &mut dyn Visitor<'a>);
    /// [`visit_field`](Self::visit_field) for visitors that change what they see.
    fn visit_field_mut(&mut self, name: &str, visitor: &mut dyn VisitorMut);
}

impl Field for Parameter {
    fn visit_field<'a>(&'a self, name: &str, visitor: &mut dyn Visitor<'a>) {
        visitor.parameter(name, self);
    }
    fn visit_field_mut(&mut self, name: &str, visitor: &mut dyn VisitorMut) {
        visitor.parameter(name, self);
    }
}

impl Field for Buffer {
    fn visit_field<'a>(&'a self, name: &str, visitor: &mut dyn Visitor<'a>) {
        visitor.buffer(name, self);
    }
    fn visit_field_mut(&mut self, name: &str, visitor: &mut dyn VisitorMut) {
        visitor.buffer(name, self);
    }
}

impl Field for Training {
    fn visit_field<'a>(&'a self, _name: &str, visitor: &mut dyn Visitor<'a>) {
        visitor.training(self);
    }
    fn visit_field_mut(&mut self, _name: &str, _visitor: &mut dyn VisitorMut) {}
}

impl Field for StatisticsGroup {
    fn visit_field<'a>(&'a self, _name: &str, visitor: &mut dyn Visitor<'a>) {
        visitor.statistics_group(self);
    }
    fn visit_field_mut(&mut self, _name: &str, _visitor: &mut dyn VisitorMut) {}
}

impl<M: Module> Field for M {
    fn visit_field<'a>(&'a self, name: &str, visitor: &mut dyn Visitor<'a>) {
        visitor.module(name, self);
    }
    fn visit_field_mut(&mut self, name: &str, visitor: &mut dyn VisitorMut) {
        visitor.module(name, self);
    }
}

impl<F: Field> Field for Option<F> {
    fn visit_field<'a>(&'a self, name: &str, visitor: &mut dyn Visitor<'a>) {
        if let Some(field) = self {
            field.visit_field(name, visitor);
        }
    }
    fn visit_field_mut(&mut self, name: &str, visitor: &mut dyn VisitorMut) {
        if let Some(field) = self {
            field.visit_field_mut(name, visitor);
        }
    }
}

/// Of no consequence, whatever `T` is.
impl<T: ?Sized> Field for PhantomData<T>
where
    PhantomData<T>: Send + Sync,
{
    fn visit_field<'a>(&'a self, _name: &str, _visitor: &mut dyn Visitor<'a>) {}
    fn visit_field_mut(&mut self, _name: &str, _visitor: &mut dyn VisitorMut) {}
}

/// A type without parameters, buffers and modules in it: all types but those that hold a
/// [`Parameter`], [`Buffer`] or [`Training`] by value (which are not [`Unpin`], so neither is what
/// holds them).
#[diagnostic::on_unimplemented(
    message = "a field of type `{Self}` may hold parameters but is not a module; add \
               `#[derive(Module)]` to it, or `#[module(skip)]` to the field"
)]
pub trait HoldsNoParameters {}
#[diagnostic::do_not_recommend]
impl<T: Unpin + ?Sized> HoldsNoParameters for T {}

/// A field about to be visited.
#[doc(hidden)]
pub struct Probe<'a, T: ?Sized>(pub &'a T);
/// A field about to be visited by a visitor that changes it.
#[doc(hidden)]
pub struct ProbeMut<'a, T: ?Sized>(pub &'a mut T);

#[doc(hidden)]
pub trait ViaField<'a> {
    fn visit(&self, name: &str, visitor: &mut dyn Visitor<'a>);
}
impl<'a, T: Field> ViaField<'a> for Probe<'a, T> {
    fn visit(&self, name: &str, visitor: &mut dyn Visitor<'a>) {
        self.0.visit_field(name, visitor);
    }
}

#[doc(hidden)]
pub trait ViaPlain<'a, T: ?Sized> {
    fn visit(&self, _name: &str, _visitor: &mut dyn Visitor<'a>)
    where
        T: HoldsNoParameters,
    {
    }
}
impl<'a, T: ?Sized> ViaPlain<'a, T> for &Probe<'a, T> {}

#[doc(hidden)]
pub trait ViaFieldMut {
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn VisitorMut);
}
impl<T: Field> ViaFieldMut for ProbeMut<'_, T> {
    fn visit_mut(&mut self, name: &str, visitor: &mut dyn VisitorMut) {
        self.0.visit_field_mut(name, visitor);
    }
}

#[doc(hidden)]
pub trait ViaPlainMut {
    // That the type holds no parameters is checked in `ViaPlain`.
    fn visit_mut(&self, _name: &str, _visitor: &mut dyn VisitorMut) {}
}
impl<T: ?Sized> ViaPlainMut for &mut ProbeMut<'_, T> {}
