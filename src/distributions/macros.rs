//! What distributions have alike.

/// The methods of the trait that say what a distribution is; it has the field `shape` and a method `expand`.
macro_rules! common {
    ($name:ident) => {
        fn name(&self) -> &'static str {
            stringify!($name)
        }
        fn batch_shape(&self) -> &[usize] {
            &self.shape.batch
        }
        fn event_shape(&self) -> &[usize] {
            &self.shape.event
        }
        fn validates(&self) -> bool {
            self.shape.validate
        }
        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
        #[track_caller]
        fn expand(
            &self,
            batch_shape: &[usize],
        ) -> std::sync::Arc<dyn $crate::distributions::Distribution> {
            std::sync::Arc::new($name::expand(self, batch_shape))
        }
    };
}
pub(super) use common;

/// The method that turns checks of values on or off.
macro_rules! refined {
    ($name:ident) => {
        impl $name {
            /// The same, with values checked against the support or not.
            pub fn with_validate_args(mut self, validate: bool) -> Self {
                self.shape.validate = validate;
                self
            }
        }
    };
}
pub(super) use refined;

/// A distribution of one number with parameters that are broadcast with each other.
macro_rules! univariate {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $p:ident: $rule:expr),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            $($p: Tensor,)+
            shape: Shape,
        }

        impl $name {
            /// The distribution with these parameters, numbers or tensors that are broadcast with each other.
            ///
            /// # Panics
            /// Throws when parameters are checked and one is not what it must be, or shapes do not fit.
            #[track_caller]
            pub fn new($($p: impl Into<Param>),+) -> Self {
                let [$($p),+] = broadcast(
                    stringify!($name),
                    [$(stringify!($p)),+],
                    [$($p.into()),+],
                );
                let shape = Shape::new(first([$(&$p),+]).shape(), &[]);
                if shape.validate {
                    $(shape.check(stringify!($name), stringify!($p), &$p, &$rule);)+
                }
                $name { $($p,)+ shape }
            }

            $($(#[$about])* pub fn $p(&self) -> &Tensor { &self.$p })+

            /// The same with its batch expanded to a shape.
            #[track_caller]
            pub fn expand(&self, batch_shape: &[usize]) -> Self {
                $name {
                    $($p: self.$p.expand(batch_shape),)+
                    shape: self.shape.expanded(batch_shape),
                }
            }
        }

        refined!($name);
    };
}
pub(super) use univariate;

/// A method of the trait that checks the value first.
macro_rules! checked {
    ($(fn $method:ident($this:ident, $value:ident) $body:block)+) => {$(
        #[track_caller]
        fn $method(&self, $value: &Tensor) -> Tensor {
            $crate::distributions::distribution::check_value(self, $value);
            let $this = self;
            $body
        }
    )+};
}
pub(super) use checked;

/// What a distribution has from the [`TransformedDistribution`](super::TransformedDistribution) in its field `inner`.
macro_rules! transformed {
    (fn $($method:ident)+) => {
        fn has_rsample(&self) -> bool {
            self.inner.has_rsample()
        }
        fn parent(&self) -> Option<&dyn $crate::distributions::Distribution> {
            Some(&self.inner)
        }
        #[track_caller]
        fn sample(&self, sample_shape: &[usize]) -> Tensor {
            self.inner.sample(sample_shape)
        }
        #[track_caller]
        fn rsample(&self, sample_shape: &[usize]) -> Tensor {
            self.inner.rsample(sample_shape)
        }
        $(transformed!(@ $method);)+
    };
    (@ sample_only) => {};
    (@ log_prob) => {
        #[track_caller]
        fn log_prob(&self, value: &Tensor) -> Tensor {
            $crate::distributions::distribution::check_value(self, value);
            self.inner.density(value)
        }
    };
    (@ cdf) => {
        #[track_caller]
        fn cdf(&self, value: &Tensor) -> Tensor {
            self.inner.cdf_checked(value, self.shape.validate)
        }
    };
    (@ icdf) => {
        #[track_caller]
        fn icdf(&self, value: &Tensor) -> Tensor {
            self.inner.icdf(value)
        }
    };
}
pub(super) use transformed;

/// A distribution with parameters that are broadcast with each other, made of transformed samples of another one.
macro_rules! by_transform {
    (
        $(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $p:ident: $rule:expr),+ $(,)? }
        = $inner:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            $($p: Tensor,)+
            inner: TransformedDistribution,
            shape: Shape,
        }

        impl $name {
            /// The distribution with these parameters, numbers or tensors that are broadcast with each other.
            ///
            /// # Panics
            /// Throws when parameters are checked and one is not what it must be, or shapes do not fit.
            #[track_caller]
            pub fn new($($p: impl Into<Param>),+) -> Self {
                let [$($p),+] = broadcast(
                    stringify!($name),
                    [$(stringify!($p)),+],
                    [$($p.into()),+],
                );
                let own = Shape::new(&[], &[]);
                if own.validate {
                    $(own.check(stringify!($name), stringify!($p), &$p, &$rule);)+
                }
                let inner: TransformedDistribution = $inner;
                let shape = Shape::new(inner.batch_shape(), inner.event_shape());
                $name { $($p,)+ inner, shape }
            }

            $($(#[$about])* pub fn $p(&self) -> &Tensor { &self.$p })+

            /// The same with its batch expanded to a shape.
            #[track_caller]
            pub fn expand(&self, batch_shape: &[usize]) -> Self {
                $name {
                    $($p: self.$p.expand(&of_batch(batch_shape, &self.shape, &self.$p)),)+
                    inner: self.inner.expand(batch_shape),
                    shape: self.shape.expanded(batch_shape),
                }
            }
        }

        refined!($name);
    };
}
pub(super) use by_transform;

/// A distribution of a probability that is given as itself or as log-odds.
macro_rules! by_odds {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            odds: Odds,
            shape: Shape,
        }

        impl $name {
            #[track_caller]
            fn of(odds: Odds) -> Self {
                let shape = Shape::new(odds.given().shape(), &[]);
                odds.check(stringify!($name), &shape);
                $name { odds, shape }.checked()
            }

            /// With probabilities.
            ///
            /// # Panics
            /// Throws when parameters are checked and one is no probability.
            #[track_caller]
            pub fn from_probs(probs: impl Into<Param>) -> Self {
                let [probs] = broadcast(stringify!($name), ["probs"], [probs.into()]);
                Self::of(Odds::Probs(probs))
            }

            /// With log-odds.
            ///
            /// # Panics
            /// Throws when parameters are checked and one is NaN.
            #[track_caller]
            pub fn from_logits(logits: impl Into<Param>) -> Self {
                let [logits] = broadcast(stringify!($name), ["logits"], [logits.into()]);
                Self::of(Odds::Logits(logits))
            }

            /// The parameters as probabilities.
            pub fn probs(&self) -> Tensor {
                self.odds.probs()
            }

            /// The parameters as log-odds.
            pub fn logits(&self) -> Tensor {
                self.odds.logits()
            }

            /// The same with its batch expanded to a shape.
            #[track_caller]
            pub fn expand(&self, batch_shape: &[usize]) -> Self {
                $name {
                    odds: self.odds.map(|t| t.expand(batch_shape)),
                    shape: self.shape.expanded(batch_shape),
                }
            }
        }

        refined!($name);
    };
}
pub(super) use by_odds;

/// What the absolute value of a number around 0, whose distribution the method `whole` gives, has from that number.
macro_rules! halved {
    () => {
        transformed!(fn sample_only);
        fn support(&self) -> Constraint {
            $crate::distributions::constraints::nonnegative()
        }
        fn mode(&self) -> Tensor {
            self.scale.zeros_like()
        }
        checked! {
            fn log_prob(d, value) {
                let both = d.whole().log_prob(value) + std::f64::consts::LN_2;
                value.ge(0.0).where_(&both, f64::NEG_INFINITY)
            }
            fn cdf(d, value) {
                d.whole().cdf(value) * 2.0 - 1.0
            }
        }
        #[track_caller]
        fn icdf(&self, value: &Tensor) -> Tensor {
            self.whole().icdf(&((value + 1.0) / 2.0))
        }
        fn entropy(&self) -> Tensor {
            self.whole().entropy() - std::f64::consts::LN_2
        }
    };
}
pub(super) use halved;

/// The methods of a distribution of transformed samples, in its field `inner`, of a relaxed one, in its field `base`.
macro_rules! relaxed {
    ($name:ident; $(#[$probs:meta])* probs, $(#[$logits:meta])* logits) => {
        impl $name {
            /// The temperature.
            pub fn temperature(&self) -> &Tensor {
                &self.base.temperature
            }

            $(#[$probs])*
            pub fn probs(&self) -> Tensor {
                self.base.probs()
            }

            $(#[$logits])*
            pub fn logits(&self) -> Tensor {
                self.base.logits()
            }

            /// The same with its batch expanded to a shape.
            #[track_caller]
            pub fn expand(&self, batch_shape: &[usize]) -> Self {
                $name {
                    base: self.base.expand(batch_shape),
                    inner: self.inner.expand(batch_shape),
                    shape: self.shape.expanded(batch_shape),
                }
            }
        }

        refined!($name);
    };
}
pub(super) use relaxed;
