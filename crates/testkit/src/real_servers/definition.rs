//! Feed definitions of the servers, in `definitions/`. They use only features of the definition file.

use super::ServerKind;

/// A definition that fills `public.orders` from one server.
#[derive(Debug, Clone, Copy)]
pub struct ServerDefinition {
    /// Name of the file without its extension.
    pub name: &'static str,
    pub server: ServerKind,
    text: &'static str,
}

impl ServerDefinition {
    /// Returns the YAML text for a server at this URL.
    pub fn text(&self, url: &str) -> String {
        self.text.replace("{base}", url)
    }
}

macro_rules! definition {
    ($server:ident, $name:literal) => {
        ServerDefinition {
            name: $name,
            server: ServerKind::$server,
            text: include_str!(concat!("../../definitions/", $name, ".yaml")),
        }
    };
}

/// The definitions of all servers, one for each way of paging.
pub const DEFINITIONS: [ServerDefinition; 8] = [
    definition!(JsonServer, "json_server_page_number"),
    definition!(JsonServer, "json_server_offset"),
    definition!(JsonServer, "json_server_header_link"),
    definition!(Datasette, "datasette_cursor"),
    definition!(Datasette, "datasette_json_link"),
    definition!(Datasette, "datasette_keyset"),
    definition!(PostGraphile, "postgraphile_connection"),
    definition!(PostGraphile, "postgraphile_offset"),
];
