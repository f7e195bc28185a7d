package hostile_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/install"
)

// stage has a control plane of its own, so that the attacks do not disturb other tests. It has a controller that serves
// all namespaces, and the victim.
type stage struct {
	t          *testing.T
	ctx        context.Context
	admin      *rest.Config
	clients    kubernetes.Interface
	controller *process
	victim     *victim
}

const systemNamespace = "fairlead-system"

func newStage(ctx context.Context, t *testing.T) *stage {
	t.Helper()
	program := buildController(ctx, t)
	c := clustertest.Start(t, cluster.Options{})
	s := &stage{t: t, ctx: ctx, admin: c.Config()}
	s.clients = kubernetes.NewForConfigOrDie(s.admin)
	calls := s.caller(s.admin)
	if err := install.CRDs(ctx, calls); err != nil {
		t.Fatal(err)
	}
	// Each client has its own identity, since the API server shares itself between identities.
	s.must(s.clients.RbacV1().ClusterRoles().Create(ctx,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}, Rules: []rbacv1.PolicyRule{
			{
				APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"operations", "webhooks"},
				Verbs: []string{"*"},
			},
			{APIGroups: []string{""}, Resources: []string{"secrets", "serviceaccounts"}, Verbs: []string{"*"}},
			{APIGroups: []string{marks.Group}, Resources: []string{"*"}, Verbs: []string{"*"}},
		}}, metav1.CreateOptions{}))
	system := s.identity(systemNamespace, "cluster-admin")
	s.must(s.clients.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "controller"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: systemNamespace, Name: account}},
	}, metav1.CreateOptions{}))
	s.controller = startController(ctx, t, program, "--kubeconfig", s.kubeconfig(system), "--listen", "127.0.0.1:0",
		"--allow-target", "127.0.0.1")
	s.victim = newVictim(s)
	return s
}

// must fails the test unless err is nil.
func (s *stage) must(_ any, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// caller returns a client that makes requests by config.
func (s *stage) caller(config *rest.Config) *call.Client {
	s.t.Helper()
	calls, err := call.New(call.Options{Config: config})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(calls.Close)
	return calls
}

// account is the service account of a namespace that makes its requests.
const account = "owner"

// identity creates a namespace and a service account with the rights of the ClusterRole there.
func (s *stage) identity(namespace, role string) *rest.Config {
	s.t.Helper()
	meta := metav1.ObjectMeta{Name: account, Namespace: namespace}
	s.must(s.clients.CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		metav1.CreateOptions{}))
	s.must(s.clients.CoreV1().ServiceAccounts(namespace).Create(s.ctx, &corev1.ServiceAccount{ObjectMeta: meta},
		metav1.CreateOptions{}))
	s.must(s.clients.RbacV1().RoleBindings(namespace).Create(s.ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{}))
	token, err := s.clients.CoreV1().ServiceAccounts(namespace).CreateToken(s.ctx, account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	s.must(token, err)
	config := rest.AnonymousClientConfig(s.admin)
	config.BearerToken, config.QPS = token.Status.Token, -1
	return config
}

// kubeconfig writes a kubeconfig file for a config with a token.
func (s *stage) kubeconfig(config *rest.Config) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	s.must(nil, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {
			Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u", Namespace: systemNamespace}},
		CurrentContext: "x",
	}, path))
	return path
}

// serve answers HTTP requests until the test ends.
func serve(t *testing.T, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// listen accepts connections until ctx ends. It runs handle for each in a goroutine, and handle closes the connection.
func listen(ctx context.Context, t *testing.T, handle func(net.Conn)) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		return ""
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			go func() {
				defer stop()
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	return fmt.Sprintf("http://%s", listener.Addr())
}

// pause waits for d or the end of the context, and reports whether d has passed.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
