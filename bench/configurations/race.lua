-- Every query goes to four resolvers at once.
addLocal("$ADDRESS:53", {$LISTEN})
setACL({"0.0.0.0/0"})
setSecurityPollSuffix("")
setServerPolicy(race)
for port = 5301, 5304 do
  newServer({address="$BACKEND_ADDRESS:" .. port, $BACKEND_OPTIONS})
end
