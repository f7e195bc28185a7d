package scenario

import "slices"

// Sections of the design.
const (
	startAndList = "Start and list"
	watchSection = "Watch"
	conditions   = "Conditions"
	lifecycle    = "Lifecycle"
	delivery     = "Delivery"
)

// Table returns all scenarios, in the order of the design.
func Table() []Scenario {
	return slices.Concat(listScenarios(), quarantineScenarios(), relistScenarios(), endScenarios(), troubleScenarios(),
		frameScenarios(), silenceScenarios(),
		historyScenarios(), oddScenarios(), conditionScenarios(), unreachableScenarios(), lifecycleScenarios(),
		deliveryScenarios())
}
