package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/shaper"
)

const module = "github.com/tundish-io/tundish"

// described are the packages whose comments describe the requests and responses of the API.
var described = []string{"admission", "internal/httpapi", "internal/opsview", "shaper", "shaper/operator"}

// named are the names of types in the document, if they differ from Go's.
var named = map[string]string{
	"opsview.Job": "JobView", "opsview.PoolView": "Pool", "opsview.Attempt": "AttemptView",
	"opsview.Settings": "FlowSettings", "shaper.OwnBounds": "GroupSettings", "shaper.ResultJSON": "JobResult", "opsview.Quota": "QuotaUse", "opsview.Batch": "BucketBatch",
	"opsview.Pool": "BucketPool", "admission.Patch": "LimitPatch",
}

// schemas are the schemas of the document: some written by hand, the others generated from Go's types.
type schemas struct {
	reflector jsonschema.Reflector
	into      *yaml.Node      // components/schemas
	byHand    map[string]bool // names
	made      map[string]*yaml.Node
}

func newSchemas(into *yaml.Node) (*schemas, error) {
	s := &schemas{into: into, byHand: map[string]bool{}, made: map[string]*yaml.Node{}}
	for i := 0; i < len(into.Content); i += 2 {
		s.byHand[into.Content[i].Value] = true
	}
	s.reflector = jsonschema.Reflector{Anonymous: true, AllowAdditionalProperties: true, Namer: nameOf}
	words := map[string][]any{}
	for _, dir := range described {
		if err := constants(dir, words); err != nil {
			return nil, err
		}
		if err := s.reflector.AddGoComments(module, "./"+dir, jsonschema.WithFullComment()); err != nil {
			return nil, err
		}
	}
	s.reflector.Mapper = func(t reflect.Type) *jsonschema.Schema {
		switch t {
		case reflect.TypeFor[admission.Rate]():
			return &jsonschema.Schema{Type: "string", Examples: []any{"20/s"}}
		case reflect.TypeFor[shaper.Budgets]():
			return &jsonschema.Schema{Type: "string", Examples: []any{"90000 tokens/m, 2000000 tokens/d"}}
		case reflect.TypeFor[time.Duration]():
			return &jsonschema.Schema{Type: "string", Examples: []any{"10s"}}
		case reflect.TypeFor[shaper.Blocker]():
			words := shaper.BlockerWords()
			list := make([]any, len(words))
			for i, word := range words {
				list[i] = word
			}
			return &jsonschema.Schema{Type: "string", Enum: list}
		}
		if t.Kind() != reflect.String || t.PkgPath() == "" {
			return nil
		}
		if t == reflect.TypeFor[shaper.Setting]() { // also settings of flows, groups and pools, by their paths
			return &jsonschema.Schema{Type: "string", Examples: []any{"rate", "pool.rate", "flow.quotas"}}
		}
		if s.byHand[nameOf(t)] {
			return &jsonschema.Schema{Ref: "#/$defs/" + nameOf(t)}
		}
		return &jsonschema.Schema{Type: "string", Enum: words[t.String()]}
	}
	return s, nil
}

// constants are the values of the string constants of each type of a package: "shaper.State", for example.
func constants(dir string, words map[string][]any) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			list, ok := decl.(*ast.GenDecl)
			if !ok || list.Tok != token.CONST {
				continue
			}
			for _, spec := range list.Specs {
				one := spec.(*ast.ValueSpec) //nolint:forcetypeassert // of a CONST
				kind, ok := one.Type.(*ast.Ident)
				if !ok || len(one.Values) != 1 {
					continue
				}
				if text, ok := one.Values[0].(*ast.BasicLit); ok && text.Kind == token.STRING {
					word, err := strconv.Unquote(text.Value)
					if err != nil {
						return err
					}
					of := file.Name.Name + "." + kind.Name
					words[of] = append(words[of], word)
				}
			}
		}
	}
	return nil
}

func nameOf(t reflect.Type) string {
	if name, ok := named[t.String()]; ok {
		return name
	}
	name, _, _ := strings.Cut(t.Name(), "[")
	return name
}

// comment returns the comment of a field.
func (s *schemas) comment(t reflect.Type, field string) string {
	name, _, _ := strings.Cut(t.Name(), "[")
	return sentence(s.reflector.CommentMap[t.PkgPath()+"."+name+"."+field])
}

// schemaOf returns the schema of a type: a reference, if the type has a name.
func (s *schemas) schemaOf(t reflect.Type) (*yaml.Node, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if name := nameOf(t); s.byHand[name] {
		return ref("schemas", name), nil
	}
	return s.convert(s.reflector.ReflectFromType(t))
}

// field is the schema of a field, with the bounds of its tag and its comment.
func (s *schemas) field(t reflect.Type, f *reflect.StructField) (*yaml.Node, error) {
	if name := f.Tag.Get("schema"); name != "" {
		return ref("schemas", name), nil
	}
	one := reflect.StructOf([]reflect.StructField{{Name: f.Name, Type: f.Type, Tag: f.Tag}})
	whole := s.reflector.ReflectFromType(one)
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	schema, _ := whole.Properties.Get(name)
	if schema == nil {
		schema = &jsonschema.Schema{}
	}
	if words := f.Tag.Get("jsonschema"); strings.Contains(words, "enum=") { // some of the words of its type
		schema.Ref, schema.Type, schema.Enum = "", "string", nil
		for rule := range strings.SplitSeq(words, ",") {
			if word, isWord := strings.CutPrefix(rule, "enum="); isWord {
				schema.Enum = append(schema.Enum, word)
			}
		}
	}
	schema.Description = s.comment(t, f.Name)
	schema.Definitions = whole.Definitions
	return s.convert(schema)
}

// convert converts a schema to YAML, and keeps the schemas that it refers to.
func (s *schemas) convert(schema *jsonschema.Schema) (*yaml.Node, error) {
	for name, definition := range schema.Definitions {
		if s.byHand[name] || s.made[name] != nil {
			continue
		}
		s.made[name] = &yaml.Node{} // being made
		node, err := s.convert(definition)
		if err != nil {
			return nil, err
		}
		s.made[name] = node
	}
	schema.Definitions, schema.Version = nil, ""
	if schema.Type == "object" { // the comment of a Go type is for readers of Go
		schema.Description = ""
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	return tidy(doc.Content[0]), nil
}

// tidy makes a JSON schema read well as YAML of this document.
func tidy(n *yaml.Node) *yaml.Node {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && strings.HasPrefix(n.Value, "#/$defs/") {
		n.Value = "#/components/schemas/" + path.Base(n.Value)
	}
	for i, child := range n.Content {
		tidy(child)
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Value == "cause" && get(n.Content[i+1], "type") != nil { // one of the words listed by hand
			of := n.Content[i+1]
			of.Content = append([]*yaml.Node{value("$ref"), value("#/components/schemas/Cause")}, without(of, "type").Content...)
		}
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Value == "description" {
			n.Content[i+1] = value(sentence(n.Content[i+1].Value))
		}
	}
	return n
}

// write adds the schemas that were made to the document, in the order of their names.
func (s *schemas) write() {
	names := make([]string, 0, len(s.made))
	for name := range s.made {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		put(s.into, name, s.made[name])
	}
}
