package main

import (
	"regexp"

	"github.com/spf13/cobra"
)

// pluginName is the program name by which kubectl finds the plugin fairlead.
const pluginName = "kubectl-fairlead"

// usages matches calls of the program in help texts: at the beginning of an indented line, or after a pipe.
var usages = regexp.MustCompile(`(?m)(^[ \t]+|\| )fairlead `)

// asPlugin adapts the help texts to the call as a kubectl plugin.
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
