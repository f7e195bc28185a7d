package up

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/controller"
)

// options are the flags.
type options struct {
	dir            string
	temporary      bool
	cacheDir       string
	apiServerFlags []string
	crds           []string

	controllerManager, kubelet bool

	with        []string   // as they were given
	programs    [][]string // with their arguments
	controller  controller.Options
	controllers int
}

// calledAs returns how to call the program of a path from the working directory: by a relative path if it is below.
func calledAs(program string) string {
	wd, err := os.Getwd()
	if err != nil || !filepath.IsAbs(program) {
		return program
	}
	if below, err := filepath.Rel(wd, program); err == nil && filepath.IsLocal(below) {
		return below
	}
	return program
}

// hints returns suggestions for next steps. program is how this program was called.
func (o *options) hints(program string) []string {
	hints := []string{"", "Copy the export line into another shell, then try:"}
	if slices.ContainsFunc(o.programs, func(p []string) bool { return filepath.Base(p[0]) == "director" }) {
		hints = append(hints,
			`  curl -X POST localhost:8080/applications -d '{"name":"shop","webhook":{"url":"http://127.0.0.1:8090/cleanup"}}'`,
			`  curl -i -X DELETE -H 'Prefer: respond-async' localhost:8080/applications/<id>`,
			`  `+program+` op wait Application/<id>`,
			`  curl -i localhost:8080/applications/<id>`)
	} else {
		hints = append(hints, `  `+program+` op schedule Application/shop --type Delete --wait`)
	}
	if o.controllers > 1 {
		hints = append(hints, `  `+program+` shards default/`+controller.DefaultGroup)
	}
	return append(hints, `  `+program+` watch operations.fairlead.io -A`, "", "Press Ctrl-C to stop.")
}
