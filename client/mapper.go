package client

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/discover"
)

// NewMapper returns a mapper that asks the server for its resources on first use. It asks again for a kind that it does
// not know, because a custom resource may have been installed since, even by the program itself. If the server does not
// know the kind either, the mapper asks at most ten times in a row, and later once a second. It logs nothing. It is
// safe for concurrent use.
func NewMapper(cfg *rest.Config) (meta.RESTMapper, error) {
	conn, err := connection.New(cfg, connection.Options{})
	if err != nil {
		return nil, fmt.Errorf("cannot make a mapper: %w", err)
	}
	conn.Close() // a mapper cannot be closed, so no connection may outlive its request
	m, err := discover.NewMapper(cfg, conn, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot make a mapper: %w", err)
	}
	return m, nil
}
