-- GET one of 100 keys.
request = function()
  return wrk.format("GET", "/v0/entity?id=key" .. math.random(0, 99))
end
