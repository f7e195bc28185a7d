package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/why"
)

type whyOptions struct {
	remote
	connection        cli.Connection
	namespace, output string
}

// NewWhyCommand returns the command fairlead why.
func NewWhyCommand(s cli.Streams) *cobra.Command {
	var o whyOptions
	cmd := &cobra.Command{
		Use:   "why KIND/NAME",
		Short: "Explain why an object makes no progress, with advice",
		Long: `Why asks a program why an object makes no progress: fairlead controller about its operations, or your own
program, with the console that WithConsole serves, about the objects that it reconciles. The answer lists all causes,
the most direct one first, with evidence and advice. Objects that the owner of the token may not get are left out.

The kind has any form that kubectl accepts. An operation may be named by its resource, as for fairlead op.

Exit codes: 0 with an answer, 1 if the object does not exist or you may not get it.`,
		Example: `  fairlead why operation/Application/shop -n prod
  fairlead why webhook/cleanup -o json
  fairlead why deployment/web --url https://operator.example.com --token "$(kubectl create token me)"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, err := objectNamed(args)
			if err != nil {
				return err
			}
			switch o.output {
			case "table", "json", "yaml":
			default:
				return cli.Usagef("unknown output format %q: use json, yaml or table", o.output)
			}
			if of.Namespace = o.namespace; of.Namespace == "" {
				of.Namespace = o.connection.ContextNamespace()
			}
			return showWhy(cmd.Context(), s, o, of)
		},
	}
	f := cmd.Flags()
	o.flags(f, "http://127.0.0.1:8081", "the program", "get the object")
	o.connection.Flags(f)
	f.StringVarP(&o.namespace, "namespace", "n", "", "`namespace` of the object (default: that of the context)")
	f.StringVarP(&o.output, "output", "o", "table", "`format`: table, json or yaml")
	return cmd
}

// objectNamed parses KIND/NAME or KIND NAME. The name of an operation may be its resource, TYPE/ID or TYPE ID.
func objectNamed(args []string) (of why.Object, err error) {
	usage := cli.Usagef(
		"name the object as KIND/NAME, such as operation/Application/shop or webhook/cleanup, or as KIND NAME")
	if len(args) == 0 || len(args) > 3 {
		return of, usage
	}
	if len(args) == 1 {
		kind, rest, _ := strings.Cut(args[0], "/")
		args = []string{kind, rest}
	}
	of.Kind, of.Name = args[0], args[1]
	kind, group, _ := strings.Cut(strings.ToLower(of.Kind), ".")
	if group = strings.TrimPrefix(group, v1alpha1.GroupVersion.Version+"."); group == "" ||
		group == v1alpha1.GroupVersion.Group {
		switch kind {
		case "op", "operation", "operations":
			of.Kind = v1alpha1.KindOperation
		case "wh", "webhook", "webhooks":
			of.Kind = v1alpha1.KindWebhook
		}
	}
	if of.Kind == v1alpha1.KindOperation && (len(args) == 3 || strings.Contains(of.Name, "/")) {
		r, err := cli.OperationResource(args[1:])
		if err != nil {
			return of, err
		}
		of.Name = v1alpha1.OperationName(r.Type, r.ID)
	} else if len(args) == 3 {
		return of, usage
	}
	if of.Kind == "" || of.Name == "" || strings.Contains(of.Name, "/") {
		return of, usage
	}
	return of, nil
}

// errNotVisible is the error for a missing object and for a missing right alike.
var errNotVisible = errors.New("the object does not exist, or you may not get it " +
	"(for a child that is not created yet, ask about its owner)")

func showWhy(ctx context.Context, s cli.Streams, o whyOptions, of why.Object) error {
	u, err := o.parse()
	if err != nil {
		return err
	}
	answer, err := o.ask(ctx, u, of)
	if err != nil {
		return err
	}
	for _, c := range answer.Causes {
		if c.Type != why.HeldBy && c.Type != why.NotLeading || c.Depth != 0 {
			continue
		}
		if at := c.Evidence["address"]; at != "" {
			there, err := o.askHolder(ctx, u, at, of)
			if err == nil {
				answer = there
				break
			}
			cli.Say(s.Err, "cannot ask the replica at %s, which holds the object: %s", cli.Plain(at),
				cli.Plain(cli.OneLine(err)))
		}
		if c.Type == why.NotLeading {
			suggestLeader(s, u, c)
		}
		break
	}
	switch o.output {
	case "json":
		return encodeEscaped(s.Out, answer)
	case "yaml":
		return cli.Encode(s.Out, "yaml", withoutControls(answer))
	}
	return printWhy(s.Out, answer)
}

// suggestLeader prints the commands that query the leader if its address is unknown or unreachable.
func suggestLeader(s cli.Streams, base *url.URL, c why.Cause) {
	namespace, _, _ := strings.Cut(c.Evidence["lease"], "/")
	host := c.Evidence["host"]
	if host == "" || namespace == "" {
		return
	}
	port := base.Port()
	if u, err := url.Parse(c.Evidence["address"]); err == nil && u.Port() != "" {
		port = u.Port()
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[base.Scheme]
	}
	cli.Say(s.Err, "replica %s leads. Ask it: "+
		"kubectl port-forward -n %s pod/%s 18081:%s, and here with --url %s://127.0.0.1:18081",
		cli.Plain(host), cli.Plain(namespace), cli.Plain(host), port, base.Scheme)
}

// maxAnswer bounds the bytes read of an answer.
const maxAnswer = 4 << 20

// ask queries a program.
func (o *whyOptions) ask(ctx context.Context, base *url.URL, of why.Object) (answer why.Answer, err error) {
	u := base.JoinPath("api", "why")
	u.RawQuery = url.Values{"kind": {of.Kind}, "namespace": {of.Namespace}, "name": {of.Name}}.Encode()
	response, done, err := o.get(ctx, u)
	if err != nil {
		if ctx.Err() != nil {
			return answer, fmt.Errorf("cannot ask why: %w", context.Cause(ctx))
		}
		return answer, fmt.Errorf("cannot ask why: %w (is the program running there? %s)", err, consoleHelp)
	}
	defer done()
	defer response.Body.Close()
	body := io.LimitReader(response.Body, maxAnswer)
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch code := response.StatusCode; {
	case code == http.StatusOK && kind == "application/json":
		if err := json.NewDecoder(body).Decode(&answer); err != nil {
			return answer, fmt.Errorf("cannot ask why: %s does not look like /api/why: %w", base, err)
		}
		return answer, nil
	case code == http.StatusOK:
		return answer, errNoConsole(base)
	}
	text, _ := io.ReadAll(io.LimitReader(body, 512))
	var problem struct{ Detail string }
	isProblem := kind == "application/problem+json"
	if json.Unmarshal(text, &problem) == nil && problem.Detail != "" {
		text = []byte(problem.Detail)
	}
	switch code := response.StatusCode; {
	case code == http.StatusNotFound && (!isProblem || strings.HasPrefix(problem.Detail, noSuchPath)):
		return answer, errNoConsole(base)
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusNotFound:
		return answer, fmt.Errorf("%s %s/%s: %w", of.Kind, of.Namespace, of.Name, errNotVisible)
	}
	return answer, fmt.Errorf("cannot ask why: %s answers %s: %s", base, response.Status,
		cli.Plain(strings.TrimSpace(string(text))))
}

// noSuchPath is the answer of package httpapi in a program without a console.
const noSuchPath = "no such path"

// consoleHelp explains how to add the console to a program.
const consoleHelp = "A program of your own needs fairlead.WithListen and fairlead.WithConsole(console.Options{}); " +
	"fairlead controller answers at the address of --listen"

// errNoConsole is the error for a program without a console.
func errNoConsole(base *url.URL) error {
	return fmt.Errorf("cannot ask why: the program at %s has no console (/api/why). %s", base, consoleHelp)
}

// askHolder queries the replica that has the object, at the address from another replica's answer. It does not send the
// token without TLS if the other replica was queried by https.
func (o *whyOptions) askHolder(ctx context.Context, base *url.URL, address string, of why.Object) (why.Answer, error) {
	if !strings.Contains(address, "://") {
		address = base.Scheme + "://" + address
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return why.Answer{}, errors.New("the address is invalid")
	case u.Scheme != "https" && u.Scheme != base.Scheme:
		return why.Answer{}, errors.New("the token would be sent in clear text")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, holderTimeout, errors.New("it does not answer"))
	defer cancel()
	return o.ask(ctx, u, of)
}

// holderTimeout bounds the wait for another replica, which may be unresponsive.
const holderTimeout = 5 * time.Second
