package up

import "github.com/fairlead-io/fairlead/cmd/fairlead/internal/controller"

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

// hints returns suggestions for next steps.
func (o *options) hints() []string {
	hints := []string{"", "Copy the export line into another shell, then try:"}
	if len(o.with) > 0 {
		hints = append(hints,
			`  curl -X POST localhost:8080/applications -d '{"name":"shop","webhook":{"url":"http://127.0.0.1:8090/cleanup"}}'`,
			`  curl -i -X DELETE -H 'Prefer: respond-async' localhost:8080/applications/<id>`,
			`  bin/fairlead op wait Application/<id>`,
			`  curl -i localhost:8080/applications/<id>`)
	} else {
		hints = append(hints, `  fairlead op schedule Application/shop --type Delete --wait`)
	}
	if o.controllers > 1 {
		hints = append(hints, `  bin/fairlead shards default/`+controller.DefaultGroup)
	}
	return append(hints, `  bin/fairlead watch operations.fairlead.io -A`, "", "Press Ctrl-C to stop.")
}
