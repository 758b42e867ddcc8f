-- Answers come from the cache, behind a rule of a million prefixes (every second /24 of 64.0.0.0/3), none of which matches.
addLocal("$ADDRESS:53", {$LISTEN})
setACL({"0.0.0.0/0"})
setSecurityPollSuffix("")
local blocked = newNMG()
for number = 0, 999999 do
  local network = 2 * number
  blocked:addMask(64 + math.floor(network / 65536) .. "." .. math.floor(network / 256) % 256 .. "." .. network % 256 .. ".0/24")
end
addAction(NetmaskGroupRule(blocked), RCodeAction(DNSRCode.REFUSED))
newServer({address="$BACKEND_ADDRESS:53", $BACKEND_OPTIONS})
getPool(""):setCache(newPacketCache(100000, {maxTTL=86400}))
