// Package controller has the controllers of this project, one file for each kind.
package controller

import (
	"cmp"
	"os"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/rights"

	"example.com/sites/api"
)

// Account is the service account of the program in a cluster. deploy/rbac.yaml gives it the rights that are declared
// here.
var Account = rights.Account{
	Namespace: cmp.Or(os.Getenv("POD_NAMESPACE"), "sites-system"), Name: "sites",
}

// InCluster returns the options of a program in a cluster. A Lease elects one of several replicas. The pages below
// /debug/, and a console, are served to callers with a token and the right to get the path.
func InCluster() []fairlead.Option {
	return []fairlead.Option{
		fairlead.WithLeaderElection(Account.Namespace, Account.Name),
		fairlead.WithConsole(console.Options{GuardDebug: true}),
	}
}

// New returns a runtime with all controllers. It sends no request.
func New(cfg *rest.Config, opts ...fairlead.Option) (*fairlead.Runtime, error) {
	scheme, err := api.Scheme()
	if err != nil {
		return nil, err
	}
	rt := fairlead.New(cfg, append(opts, fairlead.WithScheme(scheme), fairlead.WithFieldOwner(Account.Name))...)
	declareSite(rt)
	declareRoute(rt)
	//fairlead:new controllers
	return rt, nil
}
