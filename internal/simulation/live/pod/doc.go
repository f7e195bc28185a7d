// Package pod runs programs that find the files of a service account where a Pod has them. Client libraries read these
// files at a fixed path. Other processes of the machine do not see them there.
//
// On Linux the program has its own mount namespace, and without the right to make one, its own user namespace as well.
// The test binary or command that uses this package runs itself to mount the files, and then becomes the program. So
// importing the package adds a check of an environment variable to the start of a program.
package pod

// Dir is where a program in a Pod finds the files ca.crt, namespace and token of its service account.
const Dir = "/var/run/secrets/kubernetes.io/serviceaccount"
