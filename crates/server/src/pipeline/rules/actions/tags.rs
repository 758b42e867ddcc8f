//! Actions on the tags of a query, which go with it to its response.

use crate::pipeline::Env;
use crate::pipeline::query::Query;
use crate::pipeline::rules::response::{Response, ResponseAction, ResponseOutcome};
use crate::pipeline::rules::{Action, Outcome};

/// `SetTagAction(name, value)` and, on responses, `SetTagResponseAction(name, value)`: in place of the value that the tag
/// had.
pub struct SetTagAction {
    pub name: Box<[u8]>,
    pub value: Box<[u8]>,
}

impl SetTagAction {
    fn tag(&self, query: &mut Query<'_>) {
        query.extras().set_tag(&self.name, &self.value);
    }

    fn text(&self) -> String {
        let name = String::from_utf8_lossy(&self.name);
        let value = String::from_utf8_lossy(&self.value);
        format!("set tag '{name}' to value '{value}'")
    }
}

impl Action for SetTagAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        self.tag(query);
        Outcome::Continue
    }

    fn describe(&self) -> String {
        self.text()
    }
}

impl ResponseAction for SetTagAction {
    fn act(&self, response: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        self.tag(&mut response.view);
        ResponseOutcome::Continue
    }

    fn describe(&self) -> String {
        self.text()
    }
}

/// `UnsetTagAction(name)` and `UnsetTagResponseAction(name)`.
pub struct UnsetTagAction {
    pub name: Box<[u8]>,
}

impl UnsetTagAction {
    fn untag(&self, query: &mut Query<'_>) {
        if let Some(extras) = query.extras.as_mut() {
            extras.tags.remove(&self.name);
        }
    }

    fn text(&self) -> String {
        format!("unset tag '{}'", String::from_utf8_lossy(&self.name))
    }
}

impl Action for UnsetTagAction {
    fn act(&self, query: &mut Query<'_>, _: &mut Env<'_>) -> Outcome {
        self.untag(query);
        Outcome::Continue
    }

    fn describe(&self) -> String {
        self.text()
    }
}

impl ResponseAction for UnsetTagAction {
    fn act(&self, response: &mut Response<'_>, _: &mut Env<'_>) -> ResponseOutcome {
        self.untag(&mut response.view);
        ResponseOutcome::Continue
    }

    fn describe(&self) -> String {
        self.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::rules::Selector;
    use crate::pipeline::rules::actions::answer::RCodeAction;
    use crate::pipeline::rules::selectors::logic::AllRule;
    use crate::pipeline::rules::selectors::tags::TagRule;
    use crate::pipeline::scene::{Reply, Scene, query};
    use wire::codes::qtype;

    fn set(value: &str) -> SetTagAction {
        SetTagAction {
            name: b"k"[..].into(),
            value: value.as_bytes().into(),
        }
    }

    fn has(value: Option<&str>) -> TagRule {
        TagRule {
            name: b"k"[..].into(),
            value: value.map(|value| value.as_bytes().into()),
        }
    }

    fn answered(scene: &mut Scene) -> bool {
        matches!(scene.ask(&query("a.", qtype::A)), Reply::Answer(_))
    }

    #[test]
    fn later_rules_see_tags_as_they_are_then() {
        for (value, expected) in [(None, true), (Some("2"), true), (Some("1"), false)] {
            let mut scene = Scene::with_rule(AllRule, set("1"));
            scene.add_rule(AllRule, set("2"));
            scene.add_rule(has(value), RCodeAction::new(5));
            assert_eq!(answered(&mut scene), expected, "{value:?}");
        }
        let mut scene = Scene::with_rule(AllRule, set("1"));
        let name = b"k"[..].into();
        scene.add_rule(AllRule, UnsetTagAction { name });
        scene.add_rule(has(None), RCodeAction::new(5));
        assert!(!answered(&mut scene));
    }

    #[test]
    fn words_of_the_dialect() {
        assert_eq!(Action::describe(&set("v")), "set tag 'k' to value 'v'");
        assert_eq!(has(None).describe(), "tag 'k' is set");
        assert_eq!(has(Some("v")).describe(), "tag 'k' is set to 'v'");
    }
}
