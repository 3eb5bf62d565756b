package main

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tundish-io/tundish/internal/httpapi"
)

const (
	endpointsPage = "docs/http-reference.md"
	endpointsHead = `# HTTP reference

<!-- made by go run ./scripts/operations -->

Every operation, field and code of the HTTP API, from [openapi.yaml](../internal/httpapi/openapi.yaml), which also has the schemas of requests and responses.
Both servers serve that file at ` + "`/openapi.yaml`" + `. The [guide](http-api.md) shows how to use the API.

Behind each operation are the roles, of which a key needs one, and the command that calls it. The role ` + "`admin`" + ` may do everything. A path that begins with ` + "`…`" + `
is below the path of its heading. With ` + "`producer.operator_api = true`" + ` a producer has the operators' operations too.

The query names a flow or a group: ` + "`/flow?flow=acme`" + `, with ` + "`&group=eu`" + ` in a bucket with groups. Percent-encode the name, which may be any text: the flow
` + "`a/b c`" + ` is ` + "`?flow=a%2Fb%20c`" + `. An id of a job is in the path: behind nginx, give ` + "`proxy_pass`" + ` no path of its own, or ids with ` + "`/`" + ` are not found.
`
)

// sentenceEnd is the end of a sentence, and not of an abbreviation or a row of dots.
var sentenceEnd = regexp.MustCompile("[^.]\\. [A-Z`]")

// apiOperation is one operation of openapi.yaml.
type apiOperation struct {
	Tags        []string
	Security    []struct{ Key []string }
	ID          string `yaml:"operationId"`
	Summary     string
	Description string
	Deprecated  bool
	Parameters  []struct {
		Ref      string `yaml:"$ref"`
		Name, In string
	}
	RequestBody struct {
		Content map[string]struct{ Schema schemaRef }
	} `yaml:"requestBody"`
	method, path string
}

type schemaRef struct {
	Ref        string `yaml:"$ref"`
	Type       any
	Items      *schemaRef
	Properties yaml.Node
}

// endpoints is the page of the HTTP API.
func endpoints() ([]byte, error) {
	text, err := document()
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	list, err := apiOperations(get(doc.Content[0], "paths"))
	if err != nil {
		return nil, err
	}
	var page strings.Builder
	page.WriteString(endpointsHead)
	for _, part := range []struct{ tags, title string }{
		{"producer", "Jobs, limits and the proxy"}, {"producer operator", "Of producers and dispatchers"}, {"operator", "Operators"},
	} {
		fmt.Fprintf(&page, "\n## %s\n", part.title)
		writeOperations(&page, list, part.tags)
	}
	schemas := get(get(doc.Content[0], "components"), "schemas")
	page.WriteString("\n## Fields of a job\n\n| field | meaning |\n|---|---|\n")
	fields(&page, get(get(schemas, "Job"), "properties"))
	page.WriteString("\n## Codes of problems\n\nErrors are problems of RFC 9457 (`application/problem+json`). [What to do](http-api.md#responses) about the common ones is in the guide.\n\n| status | code | title |\n|---|---|---|\n")
	for _, c := range httpapi.ProblemCodes() {
		fmt.Fprintf(&page, "| %d | `%s` | %s |\n", c.Status, c.Code, c.Title)
	}
	page.WriteString("\n## Settings that can change at run time\n\n" +
		"`bucket set`, `pool set`, `flow set`, `group set` and a `PATCH` take these. A flow also has headers and secrets.\n\n| setting | of a | is |\n|---|---|---|\n" + changeable())
	return []byte(page.String()), nil
}

func apiOperations(paths *yaml.Node) (list []*apiOperation, err error) {
	methods := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	for i := 0; i+1 < len(paths.Content); i += 2 {
		path, item := paths.Content[i].Value, paths.Content[i+1]
		for k := 0; k+1 < len(item.Content); k += 2 {
			method := strings.ToUpper(item.Content[k].Value)
			if !slices.Contains(methods, method) {
				continue
			}
			op := &apiOperation{method: method, path: path}
			if err := item.Content[k+1].Decode(op); err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			if len(op.Tags) > 0 {
				list = append(list, op)
			}
		}
	}
	return list, nil
}

// resources are the paths that many others begin with.
var resources = []string{"/v1/buckets/{bucket}/jobs", "/v1/buckets/{bucket}/dead", "/v1/buckets/{bucket}/flow", "/v1/buckets/{bucket}/group", "/v1/buckets/{bucket}", "/v1/limits", "/v1/pools", "/v1/schedules"}

// writeOperations writes the operations with these tags, below a heading for each resource.
func writeOperations(page *strings.Builder, list []*apiOperation, tags string) {
	below := map[string][]*apiOperation{}
	for _, op := range list {
		if strings.Join(op.Tags, " ") == tags {
			at := slices.IndexFunc(resources, func(r string) bool { return op.path == r || strings.HasPrefix(op.path, r+"/") })
			resource := ""
			if at >= 0 {
				resource = resources[at]
			}
			below[resource] = append(below[resource], op)
		}
	}
	for _, resource := range append([]string{""}, resources...) {
		if len(below[resource]) == 0 {
			continue
		}
		if resource != "" {
			fmt.Fprintf(page, "\n### `%s`\n", resource)
		}
		page.WriteString("\n")
		for _, op := range below[resource] {
			op.write(page, resource)
		}
	}
}

// write writes an item of a list.
func (op *apiOperation) write(page *strings.Builder, resource string) {
	path := op.path
	if resource != "" {
		path = "…" + strings.TrimPrefix(path, resource)
	}
	fmt.Fprintf(page, "- `%s %s`: %s.", op.method, path, strings.TrimSuffix(op.Summary, "."))
	text := strings.Join(strings.Fields(op.Description), " ")
	if end := sentenceEnd.FindStringIndex(text); end != nil { // openapi.yaml has the rest
		text = text[:end[0]+2]
	}
	if text != "" {
		fmt.Fprintf(page, " %s", text)
	}
	var facts []string
	if len(op.Security) > 0 && len(op.Security[0].Key) > 0 {
		facts = append(facts, strings.Join(op.Security[0].Key, ", "))
	}
	for _, d := range httpapi.Operations() {
		if d.ID == op.ID && len(d.Commands) > 0 {
			facts = append(facts, "`"+strings.Join(d.Commands, "`, `")+"`")
		}
	}
	var query []string
	for _, p := range op.Parameters {
		if p.In == "query" {
			query = append(query, "`"+p.Name+"`")
		}
	}
	if len(query) > 0 {
		facts = append(facts, "query "+strings.Join(query, ", "))
	}
	if body := op.body(); body != "" {
		facts = append(facts, "body "+body)
	}
	if len(facts) > 0 {
		fmt.Fprintf(page, " (%s)", strings.Join(facts, " · "))
	}
	page.WriteString("\n")
}

// body names the schema of a request, or its fields.
func (op *apiOperation) body() string {
	for _, media := range []string{"application/json", "application/x-ndjson", "*/*"} {
		content, is := op.RequestBody.Content[media]
		if !is {
			continue
		}
		if ref := content.Schema.Ref; ref != "" {
			return "`" + ref[strings.LastIndex(ref, "/")+1:] + "`"
		}
		var names []string
		for i := 0; i+1 < len(content.Schema.Properties.Content); i += 2 {
			names = append(names, "`"+content.Schema.Properties.Content[i].Value+"`")
		}
		return strings.Join(names, ", ")
	}
	return ""
}

// fields writes a row for each property.
func fields(page *strings.Builder, properties *yaml.Node) {
	for i := 0; i+1 < len(properties.Content); i += 2 {
		name, schema := properties.Content[i].Value, properties.Content[i+1]
		var text string
		if n := get(schema, "description"); n != nil {
			text = strings.Join(strings.Fields(n.Value), " ")
		}
		if n := get(schema, "default"); n != nil {
			text = strings.TrimSpace(text + " (default " + n.Value + ")")
		}
		if n := get(schema, "enum"); n != nil {
			values := make([]string, len(n.Content))
			for k, v := range n.Content {
				values[k] = "`" + v.Value + "`"
			}
			text = strings.TrimSpace(strings.Join(values, ", ") + ". " + text)
		}
		if n := get(schema, "maximum"); n != nil && text == "" {
			text = "at most " + n.Value
		}
		fmt.Fprintf(page, "| `%s` | %s |\n", name, strings.ReplaceAll(text, "|", `\|`))
	}
}
