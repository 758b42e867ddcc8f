-- Answers come from the cache, behind a rule of a million suffixes, none of which matches.
addLocal("$ADDRESS:53", {$LISTEN})
setACL({"0.0.0.0/0"})
setSecurityPollSuffix("")
local blocked = newSuffixMatchNode()
for number = 1, 1000000 do
  blocked:add("n" .. number .. ".blocked" .. number % 1000 .. ".example.")
end
addAction(SuffixMatchNodeRule(blocked), RCodeAction(DNSRCode.REFUSED))
newServer({address="$BACKEND_ADDRESS:53", $BACKEND_OPTIONS})
getPool(""):setCache(newPacketCache(100000, {maxTTL=86400}))
