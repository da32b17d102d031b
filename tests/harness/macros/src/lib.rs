//! The attribute of tests on a device.

use proc_macro::{Delimiter, Group, Punct, Spacing, TokenStream, TokenTree};

/// Makes a test of `fn name(context: &Context) { .. }`: the body runs with the device of all tests in `hotrow_harness::device::with_gpu`, which skips it, or
/// fails, where there is none.
#[proc_macro_attribute]
pub fn gpu_test(_: TokenStream, function: TokenStream) -> TokenStream {
    let mut head: Vec<TokenTree> = function.into_iter().collect();
    let (Some(body), Some(TokenTree::Group(argument))) = (head.pop(), head.pop()) else {
        return "compile_error!(\"wanted `fn name(context: &Context) { .. }`\");".parse().unwrap_or_default();
    };
    let bar = || TokenStream::from(TokenTree::from(Punct::new('|', Spacing::Alone)));
    let closure = [bar(), argument.stream(), bar(), body.into()];
    let given = TokenTree::from(Group::new(Delimiter::Parenthesis, closure.into_iter().collect()));
    let path: TokenStream = "::hotrow_harness::device::with_gpu".parse().unwrap_or_default();
    let call = [path, given.into()].into_iter().collect();
    let own = [Group::new(Delimiter::Parenthesis, TokenStream::new()), Group::new(Delimiter::Brace, call)];
    let test: TokenStream = "#[test]".parse().unwrap_or_default();
    test.into_iter().chain(head).chain(own.map(TokenTree::from)).collect()
}
