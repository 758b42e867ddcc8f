-- Every query goes to the backend.
addLocal("$ADDRESS:53", {$LISTEN})
setACL({"0.0.0.0/0"})
setSecurityPollSuffix("")
newServer({address="$BACKEND_ADDRESS:53", $BACKEND_OPTIONS})
