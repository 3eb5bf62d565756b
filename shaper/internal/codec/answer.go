package codec

import (
	"fmt"
	"reflect"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
)

// ReadAnswer sets the fields of a struct that have a tag lua: the name of a value of the answer, after the prefix. Instants and durations
// are microseconds there, and a rate is two values, …_count and …_per. It panics where a field has another type: tags are part of the
// program.
func ReadAnswer(a *lua.Answer, prefix string, into any) {
	readAnswer(a, prefix, reflect.ValueOf(into).Elem())
}

func readAnswer(a *lua.Answer, prefix string, v reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, ok := field.Tag.Lookup("lua")
		if !ok {
			if field.Anonymous && field.Type.Kind() == reflect.Struct {
				readAnswer(a, prefix, v.Field(i))
			}
			continue
		}
		name = prefix + name
		switch to := v.Field(i).Addr().Interface().(type) {
		case *int64:
			*to = a.Int(name)
		case *bool:
			*to = a.Int(name) == 1
		case *string:
			*to = a.Text(name)
		case *time.Time:
			*to = InstantOf(a.Int(name))
		case *time.Duration:
			*to = lua.Microseconds(a.Int(name))
		case *admission.Rate:
			*to = rateOf(a.Int(name+"_count"), a.Int(name+"_per"))
		default:
			panic(fmt.Sprintf("codec: %s.%s: no value of an answer is a %s", v.Type(), field.Name, field.Type))
		}
	}
}
