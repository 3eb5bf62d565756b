package main

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Pieces of YAML. A mapping keeps the order of its members.

func lower(text string) string { return strings.ToLower(text) }

func mapping(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(pairs); i += 2 {
		put(n, pairs[i].(string), pairs[i+1]) //nolint:forcetypeassert // names are constants
	}
	return n
}

// short writes a mapping in one line.
func short(pairs ...any) *yaml.Node {
	n := mapping(pairs...)
	n.Style = yaml.FlowStyle
	return n
}

func list(style yaml.Style, items ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: style}
	for _, item := range items {
		n.Content = append(n.Content, value(item))
	}
	return n
}

func value(v any) *yaml.Node {
	switch v := v.(type) {
	case *yaml.Node:
		return v
	case string:
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}
		if strings.Contains(v, "\n") {
			n.Style = yaml.LiteralStyle
		}
		return n
	}
	var n yaml.Node
	_ = n.Encode(v) // numbers and truths
	return &n
}

func get(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

func put(n *yaml.Node, name string, v any) {
	n.Content = append(n.Content, value(name), value(v))
}

// ref points to a component.
func ref(kind, name string) *yaml.Node { return short("$ref", "#/components/"+kind+"/"+name) }

func without(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			n.Content = slices.Delete(slices.Clone(n.Content), i, i+2)
			break
		}
	}
	return n
}

// sentence turns a comment into a description.
func sentence(comment string) string {
	lines := strings.Split(strings.TrimSpace(comment), "\n\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	text := strings.Join(lines, "\n\n")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
