package httpapi_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/tundish-io/tundish/internal/httpapi"
	"github.com/tundish-io/tundish/internal/must"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
)

// contract is what of openapi.yaml a test can hold true.
type contract struct {
	Paths      map[string]map[string]yaml.Node
	Components struct {
		Schemas map[string]struct {
			Enum       []string
			Properties map[string]yaml.Node
		}
	}
}

func readContract(t *testing.T) (c contract, text string) {
	t.Helper()
	return readContractOf(t, "openapi.yaml")
}

func readContractOf(t *testing.T, name string) (c contract, text string) {
	t.Helper()
	data := must.Get(os.ReadFile(name))(t)
	must.OK(t, yaml.Unmarshal(data, &c))
	return c, string(data)
}

// operationsOf are "METHOD path: id [roles] server" of a contract, one for each server.
func operationsOf(t *testing.T, c contract) (list []string) {
	t.Helper()
	for path, methods := range c.Paths {
		for method, node := range methods {
			if method == "parameters" || method == "description" {
				continue
			}
			var op struct {
				OperationID string `yaml:"operationId"`
				Tags        []string
				Security    []struct{ Key []string }
			}
			must.OK(t, node.Decode(&op))
			for _, server := range op.Tags {
				list = append(list, fmt.Sprintf("%s %s: %s %v %s", strings.ToUpper(method), path, op.OperationID, op.Security, server))
			}
		}
	}
	slices.Sort(list)
	return list
}

// Every operation of 0.1.0 is still there, on the same servers and for the same roles.
func TestContractHasTheOperationsOfTheRelease(t *testing.T) {
	t.Parallel()
	now, _ := readContract(t)
	before, _ := readContractOf(t, "../../test/testdata/openapi.yaml")
	there := operationsOf(t, now)
	for _, op := range operationsOf(t, before) {
		if !slices.Contains(there, op) {
			t.Errorf("it is another one now, or gone: %s", op)
		}
	}
}

func TestContractHasTheRoutes(t *testing.T) {
	t.Parallel()
	c, _ := readContract(t)
	documented := map[string][]string{}
	for path, methods := range c.Paths {
		for method, node := range methods {
			if method == "parameters" || method == "description" {
				continue
			}
			var operation struct {
				Tags     []string
				Security []struct{ Key []string }
			}
			must.OK(t, node.Decode(&operation))
			roles := []string{}
			for _, needs := range operation.Security {
				roles = append(roles, needs.Key...)
			}
			for _, tag := range operation.Tags {
				documented[tag] = append(documented[tag], fmt.Sprintf("%s %s: %v", strings.ToUpper(method), path, roles))
			}
		}
	}
	served := map[string][]string{"producer": httpapi.ProducerRoutes(), "operator": httpapi.OpsRoutes()}
	for _, routes := range []map[string][]string{documented, served} {
		for _, list := range routes {
			slices.Sort(list)
		}
	}
	must.Equal(t, cmp.Diff(served, documented), "", "openapi.yaml (-served +documented):")
}

func TestContractHasTheCodesAndTheFields(t *testing.T) {
	t.Parallel()
	c, _ := readContract(t)
	codes, documented := httpapi.Codes(), c.Components.Schemas["Code"].Enum
	slices.Sort(codes)
	slices.Sort(documented)
	must.Equal(t, cmp.Diff(codes, documented), "", "codes (-served +documented):")
	for field := range c.Components.Schemas["Job"].Properties {
		if _, err := httpapi.DecodeJob([]byte(`{"payload":1,"` + field + `":null}`)); err != nil && field != "payload" {
			t.Errorf("field %s is documented and not taken: %v", field, err)
		}
	}
	states := []shaper.State{
		shaper.StateScheduled, shaper.StateQueued, shaper.StateInFlight, shaper.StateRetrying,
		shaper.StateDone, shaper.StateDead, shaper.StateCancelled, shaper.StateDropped,
	}
	for i, state := range c.Components.Schemas["State"].Enum {
		if string(states[i]) != state {
			t.Errorf("state %s: want %s", state, states[i])
		}
	}
}

// What is described by hand of flows, groups and schedules has their settings, and no others.
func TestContractHasTheSettings(t *testing.T) {
	t.Parallel()
	c, _ := readContract(t)
	names := func(list []shaper.FlowSetting, more ...string) []string {
		for _, name := range list {
			more = append(more, string(name))
		}
		return slices.Sorted(slices.Values(more))
	}
	for schema, want := range map[string][]string{
		"FlowPatch":  names(shaper.FlowSettingNames(), operator.AddSecrets, operator.RemoveSecrets),
		"GroupPatch": names(shaper.GroupSettingNames()),
	} {
		must.Equal(t, cmp.Diff(want, slices.Sorted(maps.Keys(c.Components.Schemas[schema].Properties))), "", "%s (-there are +documented):", schema)
	}
}

func TestContractIsServed(t *testing.T) {
	t.Parallel()
	_, text := readContract(t)
	api, _ := producerAPI(t)
	a := api.do("GET", "/openapi.yaml", "").want(200, "")
	a.wantHeader("Content-Type", "application/yaml")
	must.Equal(t, a.text, text, "it is another one")
}
