package outboxtest

import "testing"

// Run runs all tests. Each of them calls open for its database.
func Run(t *testing.T, open func(t *testing.T) Database) {
	for _, each := range []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"CommittedIsDelivered", testCommittedIsDelivered},
		{"PollFindsWhatNobodyToldOf", testPollFindsWhatNobodyToldOf},
		{"RolledBackIsNotDelivered", testRolledBackIsNotDelivered},
		{"EnqueueAgain", testEnqueueAgain},
		{"SchemaIsMadeByManyAtOnce", testSchemaIsMadeByManyAtOnce},
		{"OrderPerKey", testOrderPerKey},
		{"FailureIsTriedAgainBeforeTheNextOfItsKey", testFailureIsTriedAgainBeforeTheNextOfItsKey},
		{"RetryAfterWaitsThatLong", testRetryAfterWaitsThatLong},
		{"RejectedIsKept", testRejectedIsKept},
		{"LeaseRunsOut", testLeaseRunsOut},
		{"StopReleases", testStopReleases},
		{"StopKeepsWhatWasDone", testStopKeepsWhatWasDone},
		{"TimeoutOfOneDelivery", testTimeoutOfOneDelivery},
		{"ConcurrencyIsBounded", testConcurrencyIsBounded},
		{"OldDeliveredEntriesAreDeleted", testOldDeliveredEntriesAreDeleted},
		{"DatabaseFailure", testDatabaseFailure},
		{"ClocksOfOthers", testClocksOfOthers},
		{"ClockOfTheDatabase", testClockOfTheDatabase},
		{"KilledRelay", testKilledRelay},
		{"Disturbed", testDisturbed},
	} {
		t.Run(each.name, func(t *testing.T) {
			t.Parallel()
			each.test(t, newBench(t, open(t)))
		})
	}
}
