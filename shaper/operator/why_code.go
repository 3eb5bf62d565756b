package operator

// WhyCode is one word for what keeps jobs from being delivered.
type WhyCode string

// The words. Where several causes hold for a job, the first in this order is reported: it holds longest, or needs a person.
const (
	WhyPaused       WhyCode = "paused"        // by an operator
	WhyNoDispatcher WhyCode = "no-dispatcher" // no process reports that it delivers jobs of the bucket
	WhyDisabled     WhyCode = "disabled"      // the flow is disabled: its jobs become dead letters
	WhyMissing      WhyCode = "missing"       // the flow has to exist, and has no settings: see [shaper.FlowSettings]
	WhyClosed       WhyCode = "closed"        // the bucket is outside of its delivery windows
	WhyBreaker      WhyCode = "breaker"       // a circuit breaker is open, or a probe is on its way
	WhyHeld         WhyCode = "held"          // the receiver asked for a wait, or the bucket changes its pool
	WhyQuota        WhyCode = "quota"         // a quota is used up
	WhyBudget       WhyCode = "budget"        // a budget has no room for the next job
	WhyInFlight     WhyCode = "in-flight"     // as many requests are in flight as may be
	WhyAdaptiveRate WhyCode = "adaptive-rate" // the receiver asked for a lower rate
	WhyHostFault    WhyCode = "host-fault"    // no host of its dispatchers can connect to receivers
	WhyFailing      WhyCode = "failing"       // attempts fail, so jobs wait for their next one, or die
	WhyLate         WhyCode = "late"          // permits are returned unused
	WhyRate         WhyCode = "rate"          // they wait for their turn at the rate of the scope, which is kept
	WhyStarting     WhyCode = "starting"      // departures began within the last half minute: too early to judge
	WhySlow         WhyCode = "slow"          // fewer departures than the rate, and nothing known explains it
	WhyLater        WhyCode = "later"         // the jobs are delayed: they are not due yet
	WhyEmpty        WhyCode = "empty"         // nothing waits. Only of a verdict
	WhySends        WhyCode = "sends"         // deliveries succeed at the rate. Only of a verdict
)

// WhyCodes lists the words in their order.
func WhyCodes() []WhyCode {
	return []WhyCode{
		WhyPaused, WhyNoDispatcher, WhyDisabled, WhyMissing, WhyClosed, WhyBreaker, WhyHeld, WhyQuota, WhyBudget, WhyInFlight, WhyAdaptiveRate, WhyHostFault, WhyFailing,
		WhyLate, WhyRate, WhyStarting, WhySlow, WhyLater, WhyEmpty, WhySends,
	}
}

// needsAPerson reports whether nothing of the scope moves before a person acts.
func (c WhyCode) needsAPerson() bool {
	return c == WhyPaused || c == WhyNoDispatcher || c == WhyDisabled || c == WhyMissing
}

// endsByItself reports whether jobs depart again at a known time.
func (c WhyCode) endsByItself() bool { return c == WhyHeld || c == WhyQuota || c == WhyBudget }
