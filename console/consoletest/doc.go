// Package consoletest looks at the console with a real browser, Chromium, as people do: at the pages of the operations controller as a
// process of its own, with a real API server and operations in all states.
//
// Screenshots of all pages are written into the directory that FAIRLEAD_SCREENSHOTS names, and otherwise of a page at which a test
// fails, into that of the test's output (go test -artifacts). It is a module of its own because the driver of the browser is needed by
// nobody else.
package consoletest
