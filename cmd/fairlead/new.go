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
		Long: `New generates a Go module with a working, tested operator:

  - the type of a custom resource, and a controller that maintains a ConfigMap, a Deployment and a Service for each
    object; for a cluster-scoped kind, an empty reconciler;
  - a test on a real kube-apiserver, main, a Makefile, a Dockerfile and a workflow for GitHub;
  - deploy/ with the manifests for kustomize, and chart/ with the same for Helm. The RBAC rules are computed from the
    declarations of the controller. Metrics need a token, and a NetworkPolicy restricts who can connect.

Then, in the directory:

	make test    # the first time, this builds a control plane: about five minutes
	make up      # the operator on a control plane of its own

The directory is created unless it exists and is empty. After an error nothing is written. New needs the go command,
which downloads modules that are not cached. The project contains no copy of Fairlead: go.mod requires it.

Until the first release, a fairlead built from a checkout makes go.mod use that directory, and prints a note; --library
names another one.

The subcommands extend a project. Each writes all of its files or none. It changes your files only at the marks
fairlead:new, and updates generated files.`,
		Example: `  fairlead new web --module example.com/web --group web.example.com --kind WebPage
  fairlead new . --module github.com/me/shop --group shop.example.com --version v1 --kind Order
  fairlead new kind --group web.example.com --kind Site          # in a project: another kind
  fairlead new webhook --group web.example.com --kind WebPage    # in a project: defaults and validation
  fairlead new version --group web.example.com --kind WebPage --version v1`,
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
	kindFlags(cmd, &o.Group, &o.Kind)
	versionFlag(cmd, &o.Version, project.DefaultVersion)
	scopeFlag(cmd, &o.ClusterScoped)
	flags.StringVar(&o.Library, "library", "",
		"`directory` with the source of Fairlead to use (default: that of this program)")
	cmd.AddCommand(newNewKindCommand(s), newNewWebhookCommand(s), newNewVersionCommand(s),
		newNewConversionCommand(s))
	return cmd
}

func newNewKindCommand(s cli.Streams) *cobra.Command {
	var o project.KindOptions
	cmd := &cobra.Command{
		Use:   "kind --group group --kind kind",
		Short: "Add a kind with an empty reconciler to a project",
		Long: `Kind adds a kind to the project in the current directory: the type of a custom resource, its definition, an
empty reconciler with a test, and a sample. It adds the rights of the reconciler to deploy/rbac.yaml.

After a change of the type or of the reconciler, make manifests updates the generated files.`,
		Example: `  fairlead new kind --group web.example.com --kind Site
  fairlead new kind --group web.example.com --kind Zone --cluster-scoped
  fairlead new kind --group shop.example.com --version v1 --kind Order --dir ../shop`,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			return extend(s, args, func() (*project.Made, error) { return project.NewKind(o) })
		},
	}
	kindFlags(cmd, &o.Group, &o.Kind)
	versionFlag(cmd, &o.Version, project.DefaultVersion)
	scopeFlag(cmd, &o.ClusterScoped)
	dirFlag(cmd, &o.Dir)
	return cmd
}

func newNewWebhookCommand(s cli.Streams) *cobra.Command {
	var o project.WebhookOptions
	cmd := &cobra.Command{
		Use:   "webhook --group group --kind kind [--defaulting] [--validating]",
		Short: "Add webhooks that default and validate a kind to a project",
		Long: `Webhook adds functions that the API server calls before it stores an object of a kind, with a test. They use
package admission: the program writes its certificates and the webhook configuration.

The first webhook also adds the server in controller/all_webhooks.go, the Service and the NetworkPolicy in
deploy/webhook.yaml, the port of the Deployment, and the rights in deploy/rbac.yaml.`,
		Example: `  fairlead new webhook --group web.example.com --kind WebPage                # both
  fairlead new webhook --group web.example.com --kind WebPage --validating`,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			return extend(s, args, func() (*project.Made, error) { return project.NewWebhook(o) })
		},
	}
	kindFlags(cmd, &o.Group, &o.Kind)
	cmd.Flags().BoolVar(&o.Defaulting, "defaulting", false, "only a function that sets defaults (default: both)")
	cmd.Flags().BoolVar(&o.Validating, "validating", false, "only a function that refuses invalid objects (default: both)")
	dirFlag(cmd, &o.Dir)
	return cmd
}

func newNewVersionCommand(s cli.Streams) *cobra.Command {
	var o project.VersionOptions
	cmd := &cobra.Command{
		Use:   "version --group group --kind kind --version version",
		Short: "Add a version of a kind, with its conversion, to a project",
		Long: `Version adds another version of a kind: a copy of the types of the stored version, the version in the
definition, the functions that convert between both, and tests of the conversion. Without an edit of the types the
functions copy all fields. A field that one version lacks fails the test of the round trip until the functions keep it.

Objects stay in the same version as before, which controllers keep using. Version puts the marker
+kubebuilder:storageversion on its type. The first version or webhook adds the server of webhooks and conversions.`,
		Example: `  fairlead new version --group web.example.com --kind WebPage --version v1
  fairlead new version --group shop.example.com --kind Order --version v2beta1 --dir ../shop`,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			return extend(s, args, func() (*project.Made, error) { return project.NewVersion(o) })
		},
	}
	kindFlags(cmd, &o.Group, &o.Kind)
	versionFlag(cmd, &o.Version, "")
	dirFlag(cmd, &o.Dir)
	return cmd
}

// extend extends a project, and prints the written files.
func extend(s cli.Streams, args []string, do func() (*project.Made, error)) error {
	if len(args) > 0 {
		return cli.Usagef("unexpected argument %q", args[0])
	}
	made, err := do()
	if err != nil {
		return newError(err)
	}
	for _, name := range made.Files {
		cli.Say(s.Err, "%s", name)
	}
	cli.Say(s.Err, "\nNext:\n  make manifests test")
	return nil
}

func newNewConversionCommand(s cli.Streams) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "conversion",
		Short: "Complete the definitions of a project that have several versions",
		Long: `Conversion adds spec.conversion to each definition in deploy/crds that has more than one version and says
nothing of the conversion: strategy Webhook, with the Service NAME-webhook of the project and the path of package
admission, and without a caBundle. The program fills in the caBundle. Until then the API server refuses requests that
need a conversion, so that no object loses fields.

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
	dirFlag(cmd, &dir)
	return cmd
}

func kindFlags(cmd *cobra.Command, group, kind *string) {
	cmd.Flags().StringVar(group, "group", "", "`group` of the API, a domain name such as web.example.com")
	cmd.Flags().StringVar(kind, "kind", "", "`kind` of its objects, in camel case, such as WebPage")
}

func versionFlag(cmd *cobra.Command, version *string, byDefault string) {
	cmd.Flags().StringVar(version, "version", byDefault, "`version` of the API, such as v1alpha1 or v1")
}

func scopeFlag(cmd *cobra.Command, clusterScoped *bool) {
	cmd.Flags().BoolVar(clusterScoped, "cluster-scoped", false, "make a kind whose objects are in no namespace")
}

func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", ".", "`directory` of the project")
}

// newError converts an error about an invalid name to a usage error.
func newError(err error) error {
	if project.Mistaken(err) {
		return cli.Usagef("%s", err)
	}
	return err
}
