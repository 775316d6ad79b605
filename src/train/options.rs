//! What a run was made with, when it goes on with other options: which may change, and which mean another run.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result};

/// The options of a run that goes on: those that are given now, the others as they were saved; and a line for each that has
/// changed, such as `--batch-size: 32 before, 64 now`.
///
/// `given` has fields of the same names as `saved`; one that is `None` or missing is not given. `fixed` are those that
/// cannot change, each with the reason.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use torchrs::train::resumed_options;
/// #[derive(Serialize, Deserialize)]
/// struct Options { seed: u64, batch_size: u64 }
/// #[derive(Serialize)]
/// struct Args { seed: Option<u64>, batch_size: Option<u64> }
/// let (saved, fixed) = (Options { seed: 7, batch_size: 32 }, [("seed", "samples would come in another order")]);
/// let args = Args { seed: None, batch_size: Some(64) };
/// let (options, changes) = resumed_options(&saved, &args, &fixed)?;
/// assert_eq!((options.seed, options.batch_size), (7, 64));
/// assert_eq!(changes, ["--batch-size: 32 before, 64 now"]);
/// let args = Args { seed: Some(8), batch_size: None };
/// let error = resumed_options(&saved, &args, &fixed).err().unwrap().to_string();
/// assert!(error.contains("--seed: is 8, but the run was made with 7: samples would"), "{error}");
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Config`] that names the option, for one that cannot change and is given otherwise; [`Error::Argument`] for
/// options that are no structs, or that do not fit together.
pub fn resumed_options<S: Serialize + DeserializeOwned>(
    saved: &S,
    given: &impl Serialize,
    fixed: &[(&str, &str)],
) -> Result<(S, Vec<String>)> {
    const CALL: &str = "resumed_options";
    let json = |argument: &str, value: serde_json::Result<Value>| match value {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(Error::argument(CALL, argument, "is no struct with named fields")),
        Err(why) => Err(Error::argument(CALL, argument, format!("cannot be JSON: {why}"))),
    };
    let mut options = json("saved", serde_json::to_value(saved))?;
    if let Some((name, _)) = fixed.iter().find(|(name, _)| !options.contains_key(*name)) {
        return Err(Error::argument(CALL, "fixed", format!("`{name}` is no field of the options")));
    }
    let mut changes = Vec::new();
    for (name, now) in json("given", serde_json::to_value(given))? {
        let Some(before) =
            options.get_mut(&name).filter(|before| !now.is_null() && **before != now)
        else {
            continue;
        };
        let (option, was, is) = (name.replace('_', "-"), text(before), text(&now));
        if let Some((_, why)) = fixed.iter().find(|(fixed, _)| *fixed == name) {
            let message = format!(
                "is {is}, but the run was made with {was}: {why}; leave the option out to go on, or start another \
                 run in a folder of its own"
            );
            return Err(Error::config(&format!("--{option}"), message));
        }
        changes.push(format!("--{option}: {was} before, {is} now"));
        *before = now;
    }
    let options = serde_json::from_value(Value::Object(options)).map_err(|why| {
        Error::argument(CALL, "given", format!("does not fit the options: {why}"))
    })?;
    Ok((options, changes))
}

/// A value in words: a name without its quotes.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}
