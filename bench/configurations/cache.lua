-- Answers come from the cache once they have been asked for.
addLocal("$ADDRESS:53", {$LISTEN})
setACL({"0.0.0.0/0"})
setSecurityPollSuffix("")
newServer({address="$BACKEND_ADDRESS:53", $BACKEND_OPTIONS})
getPool(""):setCache(newPacketCache(100000, {maxTTL=86400}))
