package flow

import "runtime"

func runtimeGoexit() { runtime.Goexit() }
