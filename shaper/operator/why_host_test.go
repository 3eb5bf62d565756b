package operator_test

import (
	"strings"
	"testing"

	"github.com/tundish-io/tundish/shaper/operator"
)

func TestWhyOnHost(t *testing.T) {
	t.Parallel()
	const fault = "dispatcher on h1: local_route: no route"
	for _, row := range []struct {
		code  operator.WhyCode
		fault string
		isAll bool
		want  operator.WhyCode
		tells bool
	}{
		{operator.WhySends, "", false, operator.WhySends, false},
		{operator.WhySends, fault, true, operator.WhyHostFault, true},
		{operator.WhyLater, fault, true, operator.WhyHostFault, true},
		{operator.WhySends, fault, false, operator.WhySends, true},
		{operator.WhyPaused, fault, true, operator.WhyPaused, false},
		{operator.WhyBreaker, fault, true, operator.WhyBreaker, false},
	} {
		why := operator.Why{Code: row.code, Sentence: "so"}.OnHost(row.fault, row.isAll)
		if why.Code != row.want || strings.Contains(why.Sentence, "h1") != row.tells {
			t.Errorf("%+v: %+v", row, why)
		}
	}
}
