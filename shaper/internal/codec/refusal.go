package codec

import (
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
)

// Refusals maps codes of enqueue.lua to the reasons of refusals. Other codes are no refusals.
var Refusals = map[int64]shaper.Reason{
	lua.IDReused:           shaper.ReasonIDReused,
	lua.IDTaken:            shaper.ReasonIDTaken,
	lua.Impossible:         shaper.ReasonImpossible,
	lua.OverBudget:         shaper.ReasonImpossible,
	lua.Limited:            shaper.ReasonLimit,
	lua.BucketFull:         shaper.ReasonBucketFull,
	lua.Shed:               shaper.ReasonShed,
	lua.WaitTooLong:        shaper.ReasonWaitTooLong,
	lua.WaitsForBudget:     shaper.ReasonWaitTooLong,
	lua.ScheduledFull:      shaper.ReasonScheduledFull,
	lua.FlowScheduledFull:  shaper.ReasonScheduledFull,
	lua.GroupScheduledFull: shaper.ReasonScheduledFull,
	lua.FlowFull:           shaper.ReasonFlowFull,
	lua.GroupFull:          shaper.ReasonGroupFull,
	lua.FlowDisabled:       shaper.ReasonFlowDisabled,
	lua.FlowMissing:        shaper.ReasonUnknownFlow,
	lua.FlowLacksURL:       shaper.ReasonUnknownFlow,
	lua.DeadFull:           shaper.ReasonDeadFull,
	lua.DeadTooLarge:       shaper.ReasonDeadFull,
	lua.TooManyFlows:       shaper.ReasonTooManyFlows,
	lua.TooManyGroups:      shaper.ReasonTooManyFlows,
	lua.TooManyOfCaller:    shaper.ReasonTooManyFlows,
}
