package main

import (
	"bytes"
	"fmt"
	"os"
	"reflect"

	"go.yaml.in/yaml/v3"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/shaper"
)

const generated = "internal/httpapi/openapi.yaml"

// byHand is one document in two files: its paths, then its components.
var byHand = [...]string{"internal/httpapi/openapi-by-hand.yaml", "internal/httpapi/openapi-by-hand-components.yaml"}

// document is the whole of openapi.yaml.
func document() ([]byte, error) {
	var source []byte
	for _, name := range byHand {
		part, err := os.ReadFile(name) //nolint:gosec // one of two constants
		if err != nil {
			return nil, err
		}
		source = append(source, part...)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(source, &doc); err != nil {
		return nil, err
	}
	root := doc.Content[0]
	paths, schemas := get(root, "paths"), get(get(root, "components"), "schemas")
	s, err := newSchemas(schemas)
	if err != nil {
		return nil, err
	}
	s.settings("BucketPatch", "Setting", reflect.TypeFor[shaper.Bucket]())
	s.settings("PoolPatch", "PoolSetting", reflect.TypeFor[shaper.Pool]())
	for _, op := range httpapi.Operations() {
		item := get(paths, op.Path)
		if item == nil {
			item = mapping()
			put(paths, op.Path, item)
		}
		operation, err := s.operation(op)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op.ID, err)
		}
		put(item, lower(op.Method), operation)
	}
	s.write()
	var out bytes.Buffer
	out.WriteString("# Made by go run ./scripts/operations, of openapi-by-hand.yaml and of the operations in *_operations.go.\n")
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(&doc); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}
