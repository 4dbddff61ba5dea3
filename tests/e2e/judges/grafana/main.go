// Reads a dashboard from its input by Grafana's own types, and says what is wrong with it: exit 1 if it is refused.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	// Without it, queries and options of panels may be of any form.
	plugins.RegisterDefaultPlugins()
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	read := dashboard.Dashboard{}
	if err = read.UnmarshalJSONStrict(text); err == nil {
		err = read.Validate()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
