package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/project"
)

func newNewCommand(s cli.Streams) *cobra.Command {
	var o project.Options
	cmd := &cobra.Command{
		Use:   "new directory --module path --group group --kind kind",
		Short: "Generate the project of an operator, with tests, RBAC rules and manifests",
		Long: `New generates a Go module with a working, tested operator as a starting point: the type
of a custom resource; a controller that maintains a ConfigMap, a Deployment and a Service for each object and reports
their state in its status; a test on a real kube-apiserver; main, a Makefile, a Dockerfile, a workflow for GitHub; and in
deploy/ everything for a cluster, for kustomize and as a Helm chart, with RBAC rules that are computed from what the
controller declares. Then, in the directory:

	make test    # the first time, this builds a control plane: about five minutes
	make up      # the operator on a control plane of its own

The directory is created unless it exists and is empty. On an error nothing is written. New needs the go command, which
downloads modules that are not cached. The project contains no copy of Fairlead: go.mod requires it.

Until the first release, a fairlead built from a checkout makes go.mod use that directory, and prints a note; --library
names another one.`,
		Example: `  fairlead new web --module example.com/web --group web.example.com --kind WebPage
  fairlead new . --module github.com/me/shop --group shop.example.com --version v1 --kind Order
  fairlead new kind --group web.example.com --kind Site          # another one, in a project`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("want one directory, and have %d", len(args))
			}
			o.Dir = args[0]
			made, err := project.New(cmd.Context(), o)
			if err != nil {
				return newError(err)
			}
			cli.Say(s.Err, "%d files in %s", len(made.Files), made.Dir)
			if made.Replaced != "" {
				cli.Say(s.Err,
					"its go.mod replaces Fairlead by the source in %[1]s, because there is no release yet. On other "+
						"machines, as in CI, run:\n"+
						"  go mod edit -dropreplace %[2]s -droprequire %[2]s && go get %[2]s@main && go mod tidy",
					made.Replaced, "github.com/fairlead-io/fairlead")
			}
			cli.Say(s.Err, "\nNext:")
			if to := filepath.Clean(args[0]); to != "." {
				cli.Say(s.Err, "  cd %s", cli.ShellQuote(to))
			}
			cli.Say(s.Err,
				"  make test    # the first time, this builds a control plane: about five minutes\n  make up")
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Module, "module", "", "`path` of the Go module, such as example.com/web")
	kindFlags(cmd, &o.Group, &o.Version, &o.Kind)
	flags.StringVar(&o.Library, "library", "",
		"`directory` with the source of Fairlead to use (default: that of this program)")
	cmd.AddCommand(newNewKindCommand(s), newNewConversionCommand(s))
	return cmd
}

func newNewKindCommand(s cli.Streams) *cobra.Command {
	var o project.KindOptions
	cmd := &cobra.Command{
		Use:   "kind --group group --kind kind",
		Short: "Add a kind and its controller to a project of fairlead new",
		Long: `Kind adds the type of a custom resource, its definition, a controller with a test, and a sample to the project
in this directory. In existing files it adds lines at the marks fairlead:new, and changes nothing else.

Run make manifests afterwards to update generated files such as deploy/rbac.yaml.`,
		Example: `  fairlead new kind --group web.example.com --kind Site
  fairlead new kind --group shop.example.com --version v1 --kind Order --dir ../shop`,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usagef("unexpected argument %q", args[0])
			}
			made, err := project.NewKind(o)
			if err != nil {
				return newError(err)
			}
			for _, name := range made.Files {
				cli.Say(s.Err, "%s", name)
			}
			cli.Say(s.Err, "\nNext:\n  make manifests test")
			return nil
		},
	}
	kindFlags(cmd, &o.Group, &o.Version, &o.Kind)
	cmd.Flags().StringVar(&o.Dir, "dir", ".", "`directory` of the project")
	return cmd
}

func newNewConversionCommand(s cli.Streams) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "conversion",
		Short: "Complete the definitions of a project that have several versions",
		Long: `Conversion adds spec.conversion to each definition in deploy/crds that has more than one version and says nothing of
the conversion: strategy Webhook, with the Service NAME-webhook of the project and the path of package admission, and
without a caBundle. The program fills in the caBundle. Until then the API server refuses requests that need a conversion,
so that no object loses fields.

make manifests of a project runs it after controller-gen, which writes no conversion.`,
		Example: `  fairlead new conversion
  fairlead new conversion --dir ../shop`,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usagef("unexpected argument %q", args[0])
			}
			made, err := project.Convert(dir)
			if err != nil {
				return newError(err)
			}
			for _, name := range made.Files {
				cli.Say(s.Err, "%s", name)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "`directory` of the project")
	return cmd
}

func kindFlags(cmd *cobra.Command, group, version, kind *string) {
	cmd.Flags().StringVar(group, "group", "", "`group` of the API, a domain name such as web.example.com")
	cmd.Flags().StringVar(kind, "kind", "", "`kind` of its objects, in camel case, such as WebPage")
	cmd.Flags().StringVar(version, "version", project.DefaultVersion, "`version` of the API")
}

// newError converts an error about an invalid name to a usage error.
func newError(err error) error {
	if project.Mistaken(err) {
		return cli.Usagef("%s", err)
	}
	return err
}
