package llm

import (
	"bytes"
	"encoding/json"
	"slices"
)

// numberBytes is what a number counts for, in bytes of text: an embedding takes its input as tokens too, each a number.
const numberBytes = 4

// Types of the parts of a message that hold or name a file, in both APIs. A model does not read them as text.
var (
	imageTypes = []string{
		"image_url", "input_audio", "video_url", // chat completions
		"input_image", "computer_screenshot", // responses
		"image", // messages
	}
	documentTypes = []string{"file", "input_file", "document", "container_upload"}
)

// referenceType is the type of an item of a response that the provider has.
const referenceType = "item_reference"

// content is what a model reads of a JSON value. Text are the strings and the names of members, which stand for what a provider writes
// around each message.
type content struct {
	text      int64 // bytes
	files     int64 // images and others, which are not in text
	documents int64 // which are in neither
	refers    bool  // to an item that the provider has
}

func (c *content) add(more content) {
	c.text += more.text
	c.files += more.files
	c.documents += more.documents
	c.refers = c.refers || more.refers
}

// count adds the content of a member, which is valid JSON.
func (c *content) count(raw json.RawMessage) {
	if len(raw) == 0 {
		return
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // a float could be out of range
	c.walk(d)
}

// walk adds the next value, one token after the other. It returns that value where it is a string, and the type of an object.
func (c *content) walk(d *json.Decoder) (text, kind string) {
	token, err := d.Token()
	if err != nil {
		return "", ""
	}
	switch token := token.(type) {
	case string:
		c.text += int64(len(token))
		return token, ""
	case json.Number:
		c.text += numberBytes
	case json.Delim:
		if token == '{' {
			return "", c.walkObject(d)
		}
		for d.More() {
			c.walk(d)
		}
		_, _ = d.Token() // the end of the list
	}
	return "", ""
}

// walkObject adds an object whose begin was read, and returns its type. A document of Anthropic may be text.
func (c *content) walkObject(d *json.Decoder) (kind string) {
	var own content
	var source string
	for d.More() {
		token, _ := d.Token() // the text is valid, so that there are no errors
		name, _ := token.(string)
		own.text += int64(len(name))
		text, inner := own.walk(d)
		switch name {
		case "type":
			kind = text
		case "source":
			source = inner
		}
	}
	_, _ = d.Token() // the end of the object
	isText := source == "text" || source == "content"
	switch {
	case slices.Contains(imageTypes, kind) && !isText:
		c.files++
	case slices.Contains(documentTypes, kind) && !isText:
		c.documents++
	case kind == referenceType:
		c.refers = true
	default:
		c.add(own)
	}
	return kind
}
