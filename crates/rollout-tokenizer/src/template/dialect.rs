//! Where the engine's operators are not jinja2's: the source is rewritten so that a filter of ours stands at that place.
//!
//! - `a ~ b` joins texts as Python writes them: each operand gets `|__str`;
//! - `for x in none` and `x in none` fail: the iterated and the container get `|__each`.
//! - `schema.items` without a call is Python's method, whatever fields the schema has: it becomes `schema|__attr("items")`;
//! - a sum that begins with `x|safe` is markup, which escapes what is added to it: each summand gets `|__markup`.
//!
//! The engine's own parser says where these places are. A template that does not parse is left alone: compiling it tells why.

use std::ops::Range;

use minijinja::machinery::{ast, parse};
use minijinja::syntax::SyntaxConfig;

use ast::{BinOpKind, CallArg, CompareOpKind, Expr, Stmt};

/// The name of the filter on operands of `~`.
pub(super) const AS_TEXT: &str = "__str";
/// The name of the filter on what is iterated or searched.
pub(super) const AS_ITERABLE: &str = "__each";

/// The name of the filter on what is added to markup.
pub(super) const AS_MARKUP: &str = "__markup";
/// The name of the filter that looks up an attribute that is a method of Python's `dict`.
pub(super) const ATTRIBUTE: &str = "__attr";

/// Methods of Python's `dict`.
const DICT_METHODS: [&str; 10] = [
    "clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "update", "values",
];

pub(super) fn bridged(source: &str, syntax: SyntaxConfig) -> String {
    let Ok(Stmt::Template(template)) = parse(source, "chat_template", syntax) else {
        return source.to_owned();
    };
    let mut places = Places {
        source,
        edits: Vec::new(),
    };
    places.statements(&template.children);
    // Two edits at one place come in the order in which they were found: the inner one first.
    places.edits.sort_by_key(|(range, _)| range.start);
    let mut bridged = String::with_capacity(source.len() + 16 * places.edits.len());
    let mut copied = 0;
    for (range, text) in places.edits {
        bridged.push_str(source.get(copied..range.start).unwrap_or_default());
        bridged.push_str(&text);
        copied = range.end;
    }
    bridged.push_str(source.get(copied..).unwrap_or_default());
    bridged
}

struct Places<'a> {
    source: &'a str,
    edits: Vec<(Range<usize>, String)>,
}

impl Places<'_> {
    /// Puts a filter behind an operand. One with an operator of its own has to be in parentheses; without them it is left alone.
    fn filter(&mut self, operand: &Expr<'_>, filter: &'static str) {
        let mut at = operand.span().end_offset as usize;
        match operand {
            Expr::Const(constant) if constant.value.as_str().is_some() => return,
            Expr::BinOp(_)
            | Expr::Compare(_)
            | Expr::IfExpr(_)
            | Expr::UnaryOp(_)
            | Expr::Test(_) => {
                let rest = self.source.get(at..).unwrap_or_default();
                let space = rest.len() - rest.trim_start().len();
                if !rest[space..].starts_with(')') {
                    return;
                }
                at += space + 1;
            }
            _ => {}
        }
        self.edits.push((at..at, format!("|{filter}")));
    }

    fn markup(&mut self, operand: &Expr<'_>) {
        match operand {
            // A constant is a summand like any other here.
            Expr::Const(constant) => {
                let at = constant.span().end_offset as usize;
                self.edits.push((at..at, format!("|{AS_MARKUP}")));
            }
            _ => self.filter(operand, AS_MARKUP),
        }
    }

    /// Replaces `.name` at the end of an access. What follows it must not go on with the access.
    fn attribute(&mut self, access: &ast::GetAttr<'_>, end: usize) {
        let before = self.source.get(..end).unwrap_or_default();
        let dot = before
            .strip_suffix(access.name)
            .map(str::trim_end)
            .filter(|rest| rest.ends_with('.'));
        let after = self.source.get(end..).unwrap_or_default().trim_start();
        if let Some(rest) = dot
            && !after.starts_with(['.', '[', '('])
        {
            let text = format!("|{ATTRIBUTE}(\"{}\")", access.name);
            self.edits.push((rest.len() - 1..end, text));
        }
    }

    fn statements(&mut self, statements: &[Stmt<'_>]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Stmt<'_>) {
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitExpr(emitted) => self.expression(&emitted.expr),
            Stmt::ForLoop(each) => {
                self.expression(&each.iter);
                self.filter(&each.iter, AS_ITERABLE);
                self.expressions(each.filter_expr.as_ref());
                self.statements(&each.body);
                self.statements(&each.else_body);
            }
            Stmt::IfCond(condition) => {
                self.expression(&condition.expr);
                self.statements(&condition.true_body);
                self.statements(&condition.false_body);
            }
            Stmt::WithBlock(block) => {
                self.expressions(block.assignments.iter().map(|(_, value)| value));
                self.statements(&block.body);
            }
            Stmt::Set(set) => self.expression(&set.expr),
            Stmt::SetBlock(set) => {
                self.expressions(set.filter.as_ref());
                self.statements(&set.body);
            }
            Stmt::AutoEscape(block) => self.statements(&block.body),
            Stmt::FilterBlock(block) => {
                self.expression(&block.filter);
                self.statements(&block.body);
            }
            Stmt::Block(block) => self.statements(&block.body),
            Stmt::Macro(declared) => {
                self.expressions(&declared.defaults);
                self.statements(&declared.body);
            }
            Stmt::CallBlock(block) => {
                self.call(&block.call);
                self.statements(&block.macro_decl.body);
            }
            Stmt::Do(done) => self.call(&done.call),
            Stmt::EmitRaw(_)
            | Stmt::Import(_)
            | Stmt::FromImport(_)
            | Stmt::Extends(_)
            | Stmt::Include(_)
            | Stmt::Continue(_)
            | Stmt::Break(_) => {}
        }
    }

    fn expressions<'b, 'c: 'b>(&mut self, expressions: impl IntoIterator<Item = &'b Expr<'c>>) {
        for expression in expressions {
            self.expression(expression);
        }
    }

    fn expression(&mut self, expression: &Expr<'_>) {
        match expression {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(slice) => {
                self.expression(&slice.expr);
                self.expressions(
                    [&slice.start, &slice.stop, &slice.step]
                        .into_iter()
                        .flatten(),
                );
            }
            Expr::UnaryOp(operation) => self.expression(&operation.expr),
            Expr::BinOp(operation) => {
                self.expressions([&operation.left, &operation.right]);
                match operation.op {
                    BinOpKind::Concat => {
                        for operand in [&operation.left, &operation.right] {
                            if !is_concatenation(operand) {
                                self.filter(operand, AS_TEXT);
                            }
                        }
                    }
                    BinOpKind::Add
                        if begins_as_markup(&operation.left) && !is_safe(&operation.right) =>
                    {
                        self.markup(&operation.right);
                    }
                    BinOpKind::In => self.filter(&operation.right, AS_ITERABLE),
                    _ => {}
                }
            }
            Expr::Compare(comparison) => {
                self.expression(&comparison.expr);
                for step in &comparison.ops {
                    self.expression(&step.expr);
                    if matches!(step.op, CompareOpKind::In | CompareOpKind::NotIn) {
                        self.filter(&step.expr, AS_ITERABLE);
                    }
                }
            }
            Expr::IfExpr(choice) => {
                self.expressions([&choice.test_expr, &choice.true_expr]);
                self.expressions(choice.false_expr.as_ref());
            }
            Expr::Filter(filter) => {
                self.expressions(filter.expr.as_ref());
                self.arguments(&filter.args);
            }
            Expr::Test(test) => {
                self.expression(&test.expr);
                self.arguments(&test.args);
            }
            Expr::GetAttr(access) => {
                self.expression(&access.expr);
                if DICT_METHODS.contains(&access.name) {
                    self.attribute(access, access.span().end_offset as usize);
                }
            }
            Expr::GetItem(access) => {
                self.expressions([&access.expr, &access.subscript_expr]);
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.expressions(&list.items),
            Expr::Tuple(tuple) => self.expressions(&tuple.items),
            Expr::Map(map) => {
                self.expressions(&map.keys);
                self.expressions(&map.values);
            }
        }
    }

    fn call(&mut self, call: &ast::Call<'_>) {
        self.expression(&call.expr);
        self.arguments(&call.args);
    }

    fn arguments(&mut self, arguments: &[CallArg<'_>]) {
        for argument in arguments {
            match argument {
                CallArg::Pos(value)
                | CallArg::Kwarg(_, value)
                | CallArg::PosSplat(value)
                | CallArg::KwargSplat(value) => self.expression(value),
            }
        }
    }
}

fn is_safe(operand: &Expr<'_>) -> bool {
    matches!(operand, Expr::Filter(filter) if filter.name == "safe")
}

fn begins_as_markup(operand: &Expr<'_>) -> bool {
    match operand {
        Expr::BinOp(operation) => {
            matches!(operation.op, BinOpKind::Add) && begins_as_markup(&operation.left)
        }
        _ => is_safe(operand),
    }
}

fn is_concatenation(operand: &Expr<'_>) -> bool {
    matches!(operand, Expr::BinOp(operation) if matches!(operation.op, BinOpKind::Concat))
}
