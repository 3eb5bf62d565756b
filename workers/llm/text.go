package llm

import (
	"encoding/json"
	"slices"

	"github.com/tundish-io/tundish/internal/jsonscan"
)

// numberBytes is what a number counts for, in bytes of text: an embedding's input may be tokens, each a number.
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

// sourceTypes are types of sources of documents that are text.
var sourceTypes = []string{"text", "content"}

// contentTypes are all known types of content.
var contentTypes = namesOf(imageTypes, documentTypes, sourceTypes, []string{referenceType}) //nolint:gochecknoglobals // a constant

// maxNesting is the depth in a body down to which a type counts. All below that is text.
const maxNesting = 128

// content is the part of a JSON value that a model reads. Text are the strings and the names of members, which stand for what a provider writes around
// each message.
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
	if len(raw) > 0 {
		c.walk(jsonscan.New(raw), 0)
	}
}

// walk adds the next value, and returns the type of an object.
func (c *content) walk(at *jsonscan.Cursor, depth int) (kind string) {
	switch what := at.Kind(); {
	case what == '"':
		c.text += jsonscan.Len(at.Value())
	case what == '0':
		c.text += numberBytes
		at.Value()
	case what != '{' && what != '[':
		at.Value()
	case depth == maxNesting:
		c.text += int64(len(at.Value()))
	case what == '{':
		return c.walkObject(at, depth+1)
	default:
		at.Parts(func([]byte) bool {
			c.walk(at, depth+1)
			return true
		})
	}
	return ""
}

// walkObject adds an object, and returns its type. A document of Anthropic may be text.
func (c *content) walkObject(at *jsonscan.Cursor, depth int) (kind string) {
	var own content
	var source string
	at.Parts(func(name []byte) bool {
		own.text += jsonscan.Len(name)
		isType := jsonscan.Is(name, "type")
		if isType && at.Kind() == '"' {
			value := at.Value()
			own.text += jsonscan.Len(value)
			kind = contentTypes.find(value)
			return true
		}
		inner := own.walk(at, depth)
		switch {
		case isType:
			kind = ""
		case jsonscan.Is(name, "source"):
			source = inner
		}
		return true
	})
	isText := slices.Contains(sourceTypes, source)
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
