//! The Python plug-in host beside the driver: the user's image with our program in it.

use serde_json::{Map, Value, json};

use super::JobInput;
use crate::api::job::Plugins;
use crate::api::values::Template;
use crate::resources::security;
use crate::resources::volumes::{self, Mounted, code as code_of};

/// Where the host listens.
pub(super) const SOCKET: &str = "/run/rollout-plugins/plugins.sock";
/// Directory of the socket.
const DIRECTORY: &str = "/run/rollout-plugins";
/// Where the user's code is.
const CODE: &str = "/code";
/// Where the program is that runs in users' images.
pub(super) const PROGRAM_DIRECTORY: &str = "/rollout";
/// The program.
pub(super) const PROGRAM: &str = "/rollout/rollout-operator";
/// The container.
pub(super) const CONTAINER: &str = "plugins";
/// The container that brings the program.
pub(super) const INSTALL: &str = "shim";

/// The socket's volume.
pub(super) fn socket() -> Mounted {
    Mounted::writable("plugins", DIRECTORY, volumes::empty_dir())
}

/// The volume with the program.
pub(super) fn program() -> Mounted {
    Mounted::writable("shim", PROGRAM_DIRECTORY, volumes::empty_dir())
}

/// The container that puts the program into its volume.
pub(super) fn install(image: &str) -> Value {
    json!({
        "name": INSTALL,
        "image": image,
        "args": ["agent", "install", PROGRAM_DIRECTORY],
        "securityContext": security::own_container(),
        "volumeMounts": [program().mount],
    })
}

/// The host's container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Host {
    /// What a template may change.
    pub(super) default: Value,
    /// What it may not.
    pub(super) fixed: Value,
    /// Its volumes.
    pub(super) volumes: Vec<Value>,
}

pub(super) fn host(input: JobInput<'_>, plugins: &Plugins) -> Host {
    let mut arguments = vec![
        "plugins".to_owned(),
        format!("--socket={SOCKET}"),
        "--python=python3".to_owned(),
        "--inherit-environment".to_owned(),
    ];
    let mut mounts = vec![socket().mount, program().read_only_mount()];
    let mut volumes = vec![program().volume, socket().volume];
    let code = plugins
        .code
        .as_ref()
        .and_then(|code| code_of(code, "plugin-code", CODE));
    if let Some((mounted, directory)) = code {
        arguments.push(format!("--code={directory}"));
        mounts.push(mounted.mount);
        volumes.push(mounted.volume);
    }
    let mut default = json!({
        "name": CONTAINER,
        "securityContext": security::users_container(),
        "env": plugins.env,
    });
    if let Some(resources) = &plugins.resources {
        default["resources"] = json!(resources);
    }
    let fixed = json!({
        "name": CONTAINER,
        "image": plugins.image,
        "command": [PROGRAM],
        "args": arguments,
        "restartPolicy": "Always",
        "env": [{"name": "ROLLOUT_JOB", "value": input.owner.name}],
        "volumeMounts": mounts,
    });
    Host {
        default,
        fixed,
        volumes,
    }
}

/// `plugins.container` as the template of a Pod.
pub(super) fn template(plugins: &Plugins) -> Option<Template> {
    let mut container = plugins.container.as_ref()?.0.clone();
    container.insert("name".to_owned(), json!(CONTAINER));
    let mut template = Map::new();
    template.insert("spec".to_owned(), json!({"initContainers": [container]}));
    Some(Template(template))
}
