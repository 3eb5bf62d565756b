package httpapi

import (
	"net/http"

	"github.com/tundish-io/tundish/internal/apikey"
	"github.com/tundish-io/tundish/internal/build"
)

// ShowVersion returns the build of a server.
var ShowVersion = &Operation[struct{}, *build.Build]{
	ID: "showVersion", Method: "GET", Path: "/v1/version", Roles: []apikey.Role{apikey.RoleRead},
	Answer:  "The same as `--version` of the program.",
	Summary: "What this server was built from",
}

func showVersion(*http.Request, *struct{}) (*build.Build, error) {
	b := build.Of("")
	return &b, nil
}
