package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

func newCRDsCommand(s cli.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "crds",
		Short: "Print the custom resource definitions of Operation and Webhook",
		Long: "Crds prints the custom resource definitions as YAML. " +
			"Install them before the controller and the operations.",
		Example: `  fairlead crds | kubectl apply --server-side -f -
  fairlead crds | kubectl diff --server-side -f -   # before an upgrade`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := s.Out.Write(v1alpha1.CRDYAML()); err != nil {
				return fmt.Errorf("cannot print: %w", err)
			}
			return nil
		},
	}
}
