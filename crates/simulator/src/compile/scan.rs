//! What the compiler must be told of a source beyond its text. The text comes from the preprocessor, so
//! that what macros make is seen too; the words of CUDA that stay in it are found here: kernels get
//! their place in the module's table, and `extern __shared__` arrays become pointers to the block's
//! dynamic shared memory, whose size only the launch knows.

/// A word, string or sign of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Token<'a> {
    text: &'a str,
    start: usize,
}

impl Token<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }

    fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// A kernel that was found.
#[derive(Debug, PartialEq, Eq)]
struct Kernel {
    name: String,
    /// The first argument of `__launch_bounds__`, as text.
    bounds: String,
}

/// What CUDA's words are in C++. They are defined only now, so that they were still there to be found.
const WORDS: &str = "#define __global__\n#define __shared__ static thread_local\n#define __constant__ static\n\
                     #define __launch_bounds__(...)\n";

/// The text as C++ with the module's table at its end, and the kernels' names.
pub fn rewrite(text: &str) -> (String, Vec<String>) {
    let tokens = tokens(text);
    let mut result = String::with_capacity(text.len() + 4096);
    result.push_str(WORDS);
    result.push_str("#line 1 \"simulated\"\n");
    let mut copied = 0;
    let mut kernels = Vec::new();
    let mut scopes: Vec<Scope> = Vec::new();
    // Whether the declaration that is being read has C's linkage, or is a template.
    let (mut linkage, mut template) = (false, false);
    for (i, token) in tokens.iter().enumerate() {
        let next = |n: usize| tokens.get(i + n).map_or("", |token| token.text);
        let outside = scopes.iter().all(|scope| *scope != Scope::Body);
        match token.text {
            "extern" if next(1) == "\"C\"" => linkage = true,
            "extern" if next(1) == "__shared__" => {
                if let Some((end, replacement)) = dynamic_shared(&tokens[i..], text, outside) {
                    result.push_str(&text[copied..token.start]);
                    result.push_str(&replacement);
                    copied = end;
                }
            }
            "template" => template = true,
            "__global__" if !template && (linkage || scopes.contains(&Scope::C)) => {
                kernels.extend(kernel(&tokens[i..], text))
            }
            "{" => {
                let before = |n: usize| i.checked_sub(n).map_or("", |i| tokens[i].text);
                scopes.push(match () {
                    () if before(1) == "\"C\"" => Scope::C,
                    () if before(1) == "namespace" || before(2) == "namespace" => Scope::Namespace,
                    () => Scope::Body,
                });
                (linkage, template) = (false, false);
            }
            "}" => {
                scopes.pop();
                (linkage, template) = (false, false);
            }
            ";" => (linkage, template) = (false, false),
            _ => {}
        }
    }
    result.push_str(&text[copied..]);
    result.push_str(&table(&kernels));
    (result, kernels.into_iter().map(|kernel| kernel.name).collect())
}

/// What a brace opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    C,
    Namespace,
    Body,
}

/// Splits a text into its tokens; the preprocessor's own lines are left out.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    let mut line_begins = true;
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'\n' => {
                line_begins = true;
                at += 1;
                continue;
            }
            c if c.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'#' if line_begins => {
                at = bytes[at..].iter().position(|c| *c == b'\n').map_or(bytes.len(), |n| at + n);
                continue;
            }
            b'R' if bytes.get(at + 1) == Some(&b'"') => at = raw_string_end(text, at),
            quote @ (b'"' | b'\'') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at = (at + 1).min(bytes.len());
            }
            c if c.is_ascii_alphanumeric() || c == b'_' || c >= 0x80 => {
                let number = c.is_ascii_digit();
                // A quote within a number separates its digits.
                let belongs = |c: &u8| {
                    c.is_ascii_alphanumeric() || *c == b'_' || *c >= 0x80 || (number && *c == b'\'')
                };
                at += bytes[at..].iter().take_while(|c| belongs(c)).count();
            }
            _ => at += 1,
        }
        line_begins = false;
        tokens.push(Token { text: &text[start..at], start });
    }
    tokens
}

/// The end of a raw string that begins at `at`.
fn raw_string_end(text: &str, at: usize) -> usize {
    let rest = &text[at + 2..];
    let Some(open) = rest.find('(') else { return text.len() };
    let close = format!("){}\"", &rest[..open]);
    rest.find(&close).map_or(text.len(), |end| at + 2 + end + close.len())
}

/// The index after the parenthesis that closes the one at `open`.
fn close(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// Words before a parenthesis that are no function's name.
fn is_attribute(word: &str) -> bool {
    ["__launch_bounds__", "__attribute__", "alignas", "__cluster_dims__", "__maxnreg__"]
        .contains(&word)
}

/// The kernel that is defined after `__global__`, the first of these tokens.
fn kernel(tokens: &[Token<'_>], text: &str) -> Option<Kernel> {
    let mut bounds = "0".to_string();
    let mut i = 1;
    while i < tokens.len() && !matches!(tokens[i].text, ";" | "{") {
        if tokens[i].text != "(" {
            i += 1;
            continue;
        }
        let word = tokens[i - 1];
        let after = close(tokens, i);
        if !is_attribute(word.text) {
            let defined = tokens.get(after).is_some_and(|token| token.text == "{");
            return (defined && word.is_word())
                .then(|| Kernel { name: word.text.to_string(), bounds });
        }
        if word.text == "__launch_bounds__" {
            let mut depth = 0;
            let comma = (i..after).find(|n| match tokens[*n].text {
                "(" | "[" | "{" => {
                    depth += 1;
                    false
                }
                ")" | "]" | "}" => {
                    depth -= 1;
                    false
                }
                sign => sign == "," && depth == 1,
            });
            let end = tokens[comma.unwrap_or(after - 1)].start;
            bounds = text[tokens[i].end()..end].trim().to_string();
        }
        i = after;
    }
    None
}

/// The end of an `extern __shared__` array's declaration, before its semicolon, and what takes its place.
fn dynamic_shared(tokens: &[Token<'_>], text: &str, outside: bool) -> Option<(usize, String)> {
    let open = tokens.iter().position(|token| matches!(token.text, "[" | ";"))?;
    if tokens[open].text != "[" || tokens.get(open + 1)?.text != "]" || open < 4 {
        return None;
    }
    let name = tokens[open - 1];
    let mut kind = String::new();
    let mut i = 2;
    while i < open - 1 {
        if is_attribute(tokens[i].text) {
            i = close(tokens, i + 1);
            continue;
        }
        kind.push_str(tokens[i].text);
        kind.push(' ');
        i += 1;
    }
    let end = tokens[open + 1].end();
    // The lines of what follows keep their numbers.
    let lines = "\n".repeat(text[tokens[0].start..end].matches('\n').count());
    let name = name.text;
    let replacement = match outside {
        false => format!("{kind}* const {name} = ({kind}*)__sim.shared{lines}"),
        true => format!(
            "static const struct {{ operator {kind}*() const {{ return ({kind}*)__sim.shared; }} \
             template <class T> explicit operator T*() const {{ return (T*)__sim.shared; }} }} {name} = {{}}{lines}"
        ),
    };
    Some((end, replacement))
}

/// The module's table, which `cuda/kernel.h` has the types for.
fn table(kernels: &[Kernel]) -> String {
    let mut table = String::from("\nstatic const __sim_kernel __sim_kernels[] = {\n");
    for Kernel { name, bounds } in kernels {
        table.push_str(&format!(
            "__sim_entry<decltype(&{name})>::template of<&{name}>(\"{name}\", ({bounds})),\n"
        ));
    }
    table.push_str(&format!(
        "{{}}}};\nextern \"C\" __attribute__((visibility(\"default\"), used)) const __sim_module \
         torchrs_simulated_module = {{{}, {}, __sim_kernels, __sim_begin_block}};\n",
        crate::kernel::abi::VERSION,
        kernels.len()
    ));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, String)> {
        let (all, _) = rewrite(text);
        let entries = all
            .lines()
            .filter_map(|line| line.split_once(">::template of<&"))
            .map(|(_, rest)| rest);
        entries
            .map(|rest| {
                let name = rest.split('>').next().unwrap().to_string();
                let bounds =
                    rest.split_once("\", (").unwrap().1.trim_end_matches(")),").to_string();
                (name, bounds)
            })
            .collect()
    }

    #[test]
    fn kernels_with_cs_linkage_are_found() {
        let text = r#"
            extern "C" __global__ void __launch_bounds__(256, 2) a(float* x) { "__global__ void no() {"; }
            extern "C" { __global__ void b(int n) {} }
            extern "C" __global__ void declared(int n);
            template <class T> __global__ void c(T x) {}
            __global__ void mangled(int) {}
        "#;
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(found(text), [pair("a", "256"), pair("b", "0")]);
    }

    #[test]
    fn dynamic_shared_memory_is_a_pointer() {
        let (all, _) = rewrite(
            "void f() {\n extern __shared__ __attribute__((aligned(16))) unsigned char s[];\n s[0] = 1; }",
        );
        assert!(all.contains("unsigned char * const s = (unsigned char *)__sim.shared;"), "{all}");
    }
}
