package clustertest

// TryInstallCRDs is InstallCRDs with an error.
var TryInstallCRDs = installCRDs
