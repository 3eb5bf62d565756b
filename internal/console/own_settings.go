package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// ownSetting is a setting that a flow or a group has of its own.
type ownSetting struct{ Name, Value string }

// ownSettings returns the settings of a flow or a group from the API's response, by name.
func ownSettings(settings any) ([]ownSetting, error) {
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a large number stays exact
	var values map[string]any
	if err := decoder.Decode(&values); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	var list []ownSetting
	for name, value := range values {
		list = append(list, ownSetting{name, settingText(value)})
	}
	slices.SortFunc(list, func(a, b ownSetting) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func settingText(value any) string {
	many, isList := value.([]any)
	if !isList {
		return fmt.Sprint(value)
	}
	if len(many) == 0 {
		return "none"
	}
	texts := make([]string, len(many))
	for i := range many {
		texts[i] = fmt.Sprint(many[i])
	}
	return strings.Join(texts, ", ")
}
