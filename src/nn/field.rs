//! How `#[derive(Module)]` tells a module's fields apart, by their types and not by attributes:
//! a type that is a [`Field`] is visited, a type that holds no tensors is plain and skipped, and
//! anything between (a tensor, a struct with parameters that is not a module) does not compile.
//!
//! The choice is made by method resolution: on `&&&Probe<T>` the method of [`ViaField`] is found first if
//! `T: Field`, then with one more reference that of [`ViaLoose`] if `T: Loose`, then with references taken away
//! that of [`ViaIndirect`] if `T: Indirect`, else the one of [`ViaPlain`].

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use super::{Buffer, Module, Parameter, StatisticsGroup, Training, Visitor, VisitorMut};
use crate::tensor::Tensor;

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

/// A type without tensors, parameters, buffers and modules in it: all types but those that hold a
/// [`Tensor`], [`Parameter`], [`Buffer`] or [`Training`] by value (which are not [`Unpin`], so neither is
/// what holds them).
#[diagnostic::on_unimplemented(
    message = "a field of type `{Self}` holds tensors or parameters but is not a module: they would not \
               be trained, moved or saved",
    note = "add `#[derive(Module)]` to the type, with its tensors as `Parameter` or `Buffer`; or \
            `#[module(skip)]` to the field, if it is meant to stay out"
)]
pub trait HoldsNoParameters {}
#[diagnostic::do_not_recommend]
impl<T: Unpin + ?Sized> HoldsNoParameters for T {}

/// A tensor that is neither a parameter nor a buffer, alone or in a container. Box and its like are [`Unpin`]
/// whatever they hold, so these are told apart by this.
#[doc(hidden)]
pub trait Loose {}
impl Loose for Tensor {}
impl<T: Loose, const N: usize> Loose for [T; N] {}

macro_rules! loose {
    ($($container:ident),*) => {$(impl<T: Loose> Loose for $container<T> {})*};
}
loose!(Option, Vec, VecDeque, Box, Rc, Arc, RefCell, Mutex, RwLock, OnceLock);
impl<T: Loose> Loose for [T] {}
impl<T: Loose> Loose for Box<[T]> {}
impl<T: Loose> Loose for Arc<[T]> {}
impl<K, V: Loose> Loose for BTreeMap<K, V> {}
impl<K, V: Loose, S> Loose for HashMap<K, V, S> {}
impl<T: Loose> Loose for parking_lot::Mutex<T> {}
impl<T: Loose> Loose for parking_lot::RwLock<T> {}

/// A pointer to values that may hold tensors without its type telling so: it is [`Unpin`] whatever they are.
#[doc(hidden)]
pub trait Indirect {
    /// The values' type.
    type Inside;
}
impl<K, V> Indirect for BTreeMap<K, V> {
    type Inside = V;
}

macro_rules! indirect {
    ($($pointer:ident),*; $($container:ident),*) => {
        $(impl<T> Indirect for $pointer<T> {
            type Inside = T;
        })*
        $(impl<T: Indirect> Indirect for $container<T> {
            type Inside = T::Inside;
        })*
    };
}
indirect!(Box, Rc, Arc; Option, Vec);

/// What no [`Loose`] type is.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a field of type `{Self}` in a module: a plain `Tensor` would not be trained, moved or saved",
    note = "make it a `Parameter` if it is trained, a `Buffer` (`Buffer::non_persistent` if it is not to be \
            saved) if not; or add `#[module(skip)]` to the field, if it is meant to stay out"
)]
pub trait Registered {}

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
impl<'a, T: Field> ViaField<'a> for &&Probe<'a, T> {
    fn visit(&self, name: &str, visitor: &mut dyn Visitor<'a>) {
        self.0.visit_field(name, visitor);
    }
}

#[doc(hidden)]
pub trait ViaLoose<'a, T: ?Sized> {
    fn visit(&self, _name: &str, _visitor: &mut dyn Visitor<'a>)
    where
        T: Registered,
    {
    }
}
impl<'a, T: Loose + ?Sized> ViaLoose<'a, T> for &&&Probe<'a, T> {}

#[doc(hidden)]
pub trait ViaIndirect<'a, T: Indirect> {
    fn visit(&self, _name: &str, _visitor: &mut dyn Visitor<'a>)
    where
        T::Inside: HoldsNoParameters,
    {
    }
}
impl<'a, T: Indirect> ViaIndirect<'a, T> for &Probe<'a, T> {}

#[doc(hidden)]
pub trait ViaPlain<'a, T: ?Sized> {
    fn visit(&self, _name: &str, _visitor: &mut dyn Visitor<'a>)
    where
        T: HoldsNoParameters,
    {
    }
}
impl<'a, T: ?Sized> ViaPlain<'a, T> for Probe<'a, T> {}

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

/// Fields that do not compile, whatever holds the tensor, each for itself; the first block shows that the frame does.
///
/// ```
/// use torchrs::{Tensor, nn::{Module, Parameter}};
/// type Alias = Tensor;
/// struct Head { weight: Parameter }
/// struct Cache { last: Option<Tensor> }
/// #[derive(Module)]
/// struct Net { #[module(skip)] x: Alias, #[module(skip)] y: Box<Head>, #[module(skip)] z: Vec<Cache> }
/// ```
/// ```compile_fail,E0277
/// use torchrs::{Tensor, nn::Module};
/// #[derive(Module)]
/// struct Net { x: Tensor }
/// ```
/// ```compile_fail,E0277
/// use torchrs::{Tensor, nn::Module};
/// type Alias = Option<Tensor>;
/// #[derive(Module)]
/// struct Net { x: Alias }
/// ```
/// ```compile_fail,E0277
/// use torchrs::{Tensor, nn::Module};
/// #[derive(Module)]
/// struct Net([Tensor; 2]);
/// ```
/// ```compile_fail,E0277
/// use torchrs::{Tensor, nn::Module};
/// #[derive(Module)]
/// struct Net { x: (usize, Tensor) }
/// ```
/// ```compile_fail,E0277
/// use torchrs::{Tensor, nn::Module};
/// #[derive(Module)]
/// struct Net { x: Box<Tensor> }
/// ```
/// ```compile_fail,E0277
/// use torchrs::{Tensor, nn::Module};
/// #[derive(Module)]
/// struct Net { x: Option<std::sync::Arc<Tensor>> }
/// ```
/// ```compile_fail,E0277
/// use torchrs::{Tensor, nn::Module};
/// #[derive(Module)]
/// struct Net { x: std::collections::BTreeMap<String, Tensor> }
/// ```
/// ```compile_fail,E0277
/// use torchrs::{Tensor, nn::Module};
/// #[derive(Module)]
/// struct Net { x: std::collections::HashMap<String, Vec<Tensor>> }
/// ```
/// ```compile_fail,E0277
/// use torchrs::{Tensor, nn::Module};
/// #[derive(Module)]
/// struct Net { x: std::sync::Mutex<Option<Tensor>> }
/// ```
/// ```compile_fail,E0277
/// use torchrs::{Tensor, nn::Module};
/// struct Cache { last: Option<Tensor> }
/// #[derive(Module)]
/// struct Net { x: Cache }
/// ```
/// ```compile_fail,E0277
/// use torchrs::nn::{Module, Parameter};
/// struct Head { weight: Parameter }
/// #[derive(Module)]
/// struct Net { x: Option<Box<Head>> }
/// ```
/// ```compile_fail,E0277
/// use torchrs::nn::{Module, Parameter};
/// struct Head { weight: Parameter }
/// #[derive(Module)]
/// struct Net<T: Module> { inner: T, x: std::collections::BTreeMap<String, Head> }
/// ```
#[allow(dead_code, reason = "for its documentation, whose blocks are tests")]
const REFUSED: () = ();
