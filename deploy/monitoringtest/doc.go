// Package monitoringtest evaluates every query of deploy/monitoring/ over the metrics of running programs, in
// Prometheus' own database and with its own engine. No alert may fire for healthy programs. For the same programs
// with faults, each alert must fire.
//
// The programs run on the clock of testing/synctest, so hours take seconds and the thresholds are those of
// production. It is a module of its own so that the library does not depend on Prometheus.
package monitoringtest
