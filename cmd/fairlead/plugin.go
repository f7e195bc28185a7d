package main

import (
	"regexp"

	"github.com/spf13/cobra"
)

// pluginName is that of the program where kubectl looks for its command fairlead.
const pluginName = "kubectl-fairlead"

// usages finds where a help text calls the program: at the beginning of a line that is indented, or behind a pipe.
var usages = regexp.MustCompile(`(?m)(^[ \t]+|\| )fairlead `)

// asPlugin has the commands tell how they are called by kubectl.
func asPlugin(root *cobra.Command) {
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl fairlead"}
	var each func(*cobra.Command)
	each = func(cmd *cobra.Command) {
		cmd.Long = usages.ReplaceAllString(cmd.Long, "${1}kubectl fairlead ")
		cmd.Example = usages.ReplaceAllString(cmd.Example, "${1}kubectl fairlead ")
		for _, child := range cmd.Commands() {
			each(child)
		}
	}
	each(root)
}
