// Package monitoringtest evaluates every query of deploy/monitoring/ over the metrics of programs that run, in Prometheus' own
// database with its own engine: programs that are well, for which no alert may fire, and the same ones in trouble, for which each has to.
//
// The programs run on the clock of testing/synctest, so that hours of them take seconds, and thresholds are those that operators have.
// It is a module of its own because Prometheus is needed by nobody else.
package monitoringtest
