#!/usr/bin/env bash
# A complete Tidemill worker over HTTP in bash. It claims runs, executes a command for each, and gives the guarantees
# of `tidemill work --server` as far as a script can. See `worker-http.sh --help`.
#
# The token is never on a command line: curl reads it from a file that only this user can read.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: worker-http.sh [options] -- COMMAND [ARGUMENT…]

Claims runs from a Tidemill server and carries each out with COMMAND. The run is given to COMMAND as JSON on
its standard input, and as TIDEMILL_RUN_ID, TIDEMILL_PROJECT, TIDEMILL_ENV, TIDEMILL_ATTEMPT, TIDEMILL_EPOCH,
TIDEMILL_RUN_KIND, TIDEMILL_GIT_SHA and TIDEMILL_GIT_REF. Its output becomes events, its exit code the result: 0 is
success.

Options:
  --name NAME      the name under which to claim; host and process id unless given
  --label LABEL    something that this worker offers; can be repeated
  --project ID     work only for this project; can be repeated
  --server URL     the server (default: TIDEMILL_SERVER, or http://127.0.0.1:7171)
  --once           carry out one run at most, then end
  --drain          end when nothing is left that could come to this worker
  --wait TIME      whole seconds for which the server holds a claim back until there is something (default: 20)
  --beat TIME      seconds between two signs of life; a cancel is noticed then (default: 5)
  --lease TIME     seconds without a sign of life after which the run goes to others (default: 60)
  --grace TIME     seconds that the command has to end when it is told to (default: 20)
  --help           show this text

The token, where the server asks for one, is TIDEMILL_TOKEN, or in the file that TIDEMILL_TOKEN=@file names; it
needs the role worker, and nothing more. COMMAND gets neither. Upkeep is done where the database is.

SIGTERM: no new claim; COMMAND gets SIGTERM and may end within the grace time. If it ends with 0, that is its
result. If not, nothing is reported, and the run goes to somebody else when its lease is over.

Exit codes: 0 drained or stopped · 1 the server cannot be used · 2 wrong use
TEXT
}

log() { printf '%(%H:%M:%S)T %s\n' -1 "$*" >&2; }

fail() {
  local code=$1
  shift
  printf 'error: %s\n' "$*" >&2
  exit "$code"
}

# --- options

name="${HOSTNAME:-worker}-$$" server="${TIDEMILL_SERVER:-http://127.0.0.1:7171}" once='' drain='' wait=20 beat=5 lease=60 grace=20
labels=() projects=() command=()
while (($# > 0)); do
  case $1 in
    --help) usage && exit 0 ;;
    --once) once=yes && shift ;;
    --drain) drain=yes && shift ;;
    --name | --label | --project | --server | --wait | --beat | --lease | --grace)
      (($# > 1)) || fail 2 "$1 needs a value; see --help"
      case $1 in
        --name) name=$2 ;;
        --label) labels+=("$2") ;;
        --project) projects+=("$2") ;;
        --server) server=$2 ;;
        *)
          [[ $2 =~ ^[0-9]{1,6}(\.[0-9]{1,3})?$ && ! $2 =~ ^[0.]+$ ]] || fail 2 "$1 is a number of seconds, such as 5"
          declare "${1#--}=$2"
          ;;
      esac
      shift 2
      ;;
    --) shift && command=("$@") && break ;;
    *) fail 2 "\`$1\` is not an option; see --help" ;;
  esac
done
((${#command[@]} > 0)) || fail 2 "there is no command; write it after \`--\`, and see --help"
for program in curl jq; do
  type -P "$program" >/dev/null || fail 1 "\`$program\` is missing"
done

[[ $server =~ ^https?:// ]] || fail 2 "\`$server\` is no address of a server; it begins with http:// or https://"
server=${server%/}
labels_json=$(jq -nc '$ARGS.positional' --args "${labels[@]}")
projects_json=$(jq -nc '$ARGS.positional' --args "${projects[@]}")

# --- time

# Converts seconds with a fraction to milliseconds.
millis() {
  local part=000
  if [[ $1 == *.* ]]; then part=${1#*.}000; fi
  printf '%s' "$((10#${1%.*} * 1000 + 10#${part:0:3}))"
}

# Sets `now`, in milliseconds.
look_at_clock() { now=$((${EPOCHREALTIME/[.,]/} / 1000)); }

now=0 beat_ms=$(millis "$beat") lease_ms=$(millis "$lease") grace_ms=$(millis "$grace")
lease_secs=$((lease_ms < 1000 ? 1 : lease_ms / 1000))
# Several calls must fit into a lease, so that one hanging call does not lose it.
call_secs=$((lease_secs < 12 ? 2 : lease_secs > 120 ? 20 : lease_secs / 6))
wait_secs=${wait%.*}
wait_secs=$((10#$wait_secs > 60 ? 60 : 10#$wait_secs))

work=$(mktemp -d "${TMPDIR:-/tmp}/tidemill-worker.XXXXXX")
# Never written to: a read with a timeout is a sleep without a child process.
mkfifo -m 600 "$work/never"
exec {never}<>"$work/never"
# Sets `token`. A token file is read for each request, because a local server has a new token after each start.
read_token() {
  local file
  token=${TIDEMILL_TOKEN:-}
  if [[ $token == @* ]]; then
    file=${token#@} token=''
    { IFS= read -r token <"$file" || true; } 2>/dev/null
  fi
}
pause() { IFS= read -r -t "$1" -u "$never" _ || true; }

# --- server calls

# ask RETRY_SECS METHOD PATH [SECONDS] <BODY: sends a request and retries transient failures for RETRY_SECS seconds.
# Retries are safe: a claim has its request id, an event its key, and a repeated finish is recognised. Returns 9 if this
# worker no longer holds the run, 75 when the time is over, and 65 for a permanent error.
ask() {
  local patience=$1 method=$2 path=$3 longest=${4:-$call_secs} body answer status wait=0.2 until
  local error="$work/error.$BASHPID" headers="$work/headers.$BASHPID" token used
  until=$((SECONDS + patience))
  IFS= read -r -d '' body || true
  while :; do
    read_token
    used=$token
    printf 'content-type: application/json\n%s' "${token:+authorization: Bearer $token$'\n'}" >"$headers"
    answer=$(curl --silent --show-error --max-time "$longest" --request "$method" --header "@$headers" \
      --data-binary @- --write-out '\n%{http_code}' "$server$path" 2>"$error" <<<"$body") || true
    status=${answer##*$'\n'} answer=${answer%$'\n'*}
    case $status in
      2??)
        printf '%s' "$answer"
        return 0
        ;;
      401)
        # The server may have been restarted after the token was read.
        read_token
        if [[ $token != "$used" ]]; then continue; fi
        ;;
      409) if jq -e '.code == "stale"' <<<"$answer" >/dev/null 2>&1; then return 9; fi ;;
    esac
    case $status in
      000 | 429 | 502 | 503 | 504 | '') log "the server does not answer: $status $(head -n 1 "$error")" ;;
      *)
        log "the server said no: $status $(jq -r '.message // empty' <<<"$answer" 2>/dev/null)"
        return 65
        ;;
    esac
    ((SECONDS < until)) || return 75
    pause "$wait"
    case $wait in 0.2) wait=0.5 ;; 0.5) wait=1 ;; *) wait=2 ;; esac
  done
}

# Claims one run; the server waits until there is one.
claim() {
  jq -nc --arg worker "$name" --arg request "$1" --argjson labels "$labels_json" --argjson projects "$projects_json" \
    --argjson lease "$lease_secs" --argjson wait "$2" \
    '{worker: $worker, request_id: $request, labels: $labels, lease_secs: $lease, wait_secs: $wait}
     + if $projects == [] then {} else {projects: $projects} end' |
    ask 0 POST /v1/claims $((call_secs + $2)) | jq -c '.runs[]'
}

# Prints the number of runs that may still become claimable for this worker.
left() {
  jq -nc --argjson labels "$labels_json" --argjson projects "$projects_json" \
    '{labels: $labels} + if $projects == [] then {} else {projects: $projects} end' |
    ask 0 POST /v1/claims/left | jq .left
}

# Prints the worker and the epoch as JSON, with more fields.
held() { jq -c --arg worker "$name" --argjson epoch "$epoch" '. + {worker: $worker, epoch: $epoch}'; }

# Appends a JSON list of events with level, message, payload and key. Returns 9 if the worker lost the run.
append() { jq -c '{events: .}' <<<"$1" | held | ask "$lease_secs" POST "/v1/runs/$run/events" >/dev/null; }

# Prints `true` if a cancel was requested.
heartbeat() { held <<<'{}' | ask 0 POST "/v1/runs/$run/heartbeat" | jq .cancel_requested; }

# Retries until the server answers, so that an outage does not cause the work to be repeated.
finish() {
  jq -nc --arg status "$1" --argjson metadata "$2" '{status: $status, metadata: $metadata}' | held |
    ask 86400 POST "/v1/runs/$run/finish" >/dev/null
}

# --- one run

pid='' beater='' stopping=''

# Succeeds while the main process of the command runs.
is_running() { [[ -n $pid ]] && kill -0 "$pid" 2>/dev/null; }

# Sends a signal to the command and all its children.
signal() { kill -"$1" -- "-$pid" 2>/dev/null || true; }

# Stops the command and stores the reason: cancelled, lost, timed-out or shutdown. Lost overrides the others.
stop() {
  if [[ ! -e $work/stop || $1 == lost ]]; then printf '%s' "$1" >"$work/stop"; fi
  if [[ $1 == lost ]]; then signal KILL; else signal TERM; fi
}

told() { cat "$work/stop" 2>/dev/null || true; }

# Runs in the background beside the command. Sends heartbeats, and stops the command after a cancel, a timeout, a lost or
# doubtful lease, or the death of the worker.
keep() {
  trap - EXIT TERM INT
  local timeout=$1 began contact beat_at kill_at='' answer code stat parent
  look_at_clock
  began=$now contact=$now beat_at=$((now + beat_ms))
  while :; do
    pause 0.2
    look_at_clock
    # If our parent process has changed, the worker is dead.
    read -r stat <"/proc/$BASHPID/stat"
    read -r _ parent _ <<<"${stat##*) }"
    if [[ $parent != "$$" ]]; then
      stop lost
      rm -rf "$work"
      return
    fi
    if [[ -n $timeout && -z $kill_at ]] && ((now - began >= timeout * 1000)); then stop timed-out; fi
    if [[ -z $kill_at && -e $work/stop ]]; then kill_at=$((now + grace_ms)); fi
    if [[ -n $kill_at ]] && ((now >= kill_at)); then signal KILL; fi
    if ((now < beat_at)); then continue; fi
    code=0
    answer=$(heartbeat) || code=$?
    case $code:$answer in
      9:*) stop lost && return ;;
      0:*) contact=$now ;;
    esac
    if [[ $answer == true && ! -e $work/stop ]]; then stop cancelled; fi
    look_at_clock
    # The lease expires soon and could not be renewed: stop the command before another worker can take the run.
    if ((now - contact >= lease_ms * 3 / 4)); then stop lost && return; fi
    beat_at=$((now + beat_ms))
  done
}

# Converts lines to events, each with its own key. Long lines are split: an event holds 8 KB, and jq 1.6 breaks
# characters of longer ones. Invalid UTF-8 becomes U+FFFD; bash drops NUL.
events() {
  local LC_ALL=C.UTF-8 text code=0 is_split=''
  while ((code == 0)); do
    IFS= read -r -n 1000 text 2>/dev/null || code=$?
    if ((${#text} == 1000)); then
      printf 'piece %s\n' "$text"
      is_split=yes
    elif [[ -n $is_split ]]; then
      printf 'last %s\n' "$text"
      is_split=''
    elif ((code == 0)) || [[ -n $text ]]; then
      printf 'whole %s\n' "$text"
    fi
  done | jq -nRc --unbuffered 'foreach inputs as $line (0; . + 1; ($line | index(" ")) as $at
    | {level: "info", message: $line[$at + 1:], key: "line-\(.)", payload: ({stream: "output"}
      + if $line[:$at] == "whole" then {} else {part: $line[:$at]} end)})'
}

# Reads the output of the command until its end. Events are written in batches, about once a second.
follow() {
  local output=$1 line rest='' batch='' count=0 since=$SECONDS code late quiet=0
  while :; do
    code=0
    IFS= read -r -t 0.5 -u "$output" line || code=$?
    if ((code == 0)); then
      batch+=${batch:+,}$rest$line rest='' quiet=0
      count=$((count + 1))
    elif ((code > 128)); then
      rest+=$line quiet=$((quiet + 1))
    fi
    # The command has ended, but a child process keeps the output open.
    if ((code > 128 && quiet >= 2)) && ! is_running; then signal KILL && quiet=0; fi
    if [[ -n $batch ]] && ((code != 0 || count >= 200 || ${#batch} >= 30000 || SECONDS > since)); then
      if [[ $(told) != lost ]]; then
        late=0
        append "[$batch]" || late=$?
        case $late in
          0) jq -rn --argjson batch "[$batch]" '$batch[-20:][].message' >>"$work/tail" ;;
          9) stop lost ;;
          *) log "events of run $run were not written" ;;
        esac
      fi
      batch='' count=0 since=$SECONDS
    fi
    ((code == 0 || code > 128)) || return 0
  done
}

# Metadata of the finish call: exit code or signal, and for a failure the reason and the last lines.
metadata() {
  local code=$1 why=$2
  tail -n 20 "$work/tail" | jq -nRc --argjson code "$code" --arg why "$why" --arg timeout "$timeout" '
    [inputs | .[:1000]] as $tail
    | (if $code > 128 then {signal: ($code - 128)} else {exit_code: $code} end)
    + (if $why == "timed-out" then {error: "the run took longer than \($timeout) s", output_tail: $tail}
       elif $why == "cancelled" or $code == 0 then {}
       else {error: (if $code > 128 then "killed by signal \($code - 128)" else "exit code \($code)" end),
             output_tail: $tail} end)'
}

# The command gets the run, but no server credentials.
start_command() {
  export TIDEMILL_RUN_ID="$run" TIDEMILL_EPOCH="$epoch"
  TIDEMILL_PROJECT=$(jq -r .project_id <<<"$claimed") && export TIDEMILL_PROJECT
  TIDEMILL_ENV=$(jq -r '.env_id | sub("^[^/]*/"; "")' <<<"$claimed") && export TIDEMILL_ENV
  TIDEMILL_ATTEMPT=$(jq -r .attempt <<<"$claimed") && export TIDEMILL_ATTEMPT
  TIDEMILL_RUN_KIND=$(jq -r .kind <<<"$claimed") && export TIDEMILL_RUN_KIND
  unset TIDEMILL_GIT_SHA TIDEMILL_GIT_REF
  if jq -e .git_sha <<<"$claimed" >/dev/null; then
    TIDEMILL_GIT_SHA=$(jq -r .git_sha <<<"$claimed") && export TIDEMILL_GIT_SHA
  fi
  if jq -e .git_ref <<<"$claimed" >/dev/null; then
    TIDEMILL_GIT_REF=$(jq -r .git_ref <<<"$claimed") && export TIDEMILL_GIT_REF
  fi
  # Job control starts the command in its own process group, so that the whole group can be signalled.
  set -m
  env -u TIDEMILL_SERVER -u TIDEMILL_TOKEN -u TIDEMILL_DATABASE \
    "${command[@]}" <<<"$claimed" >"$work/output" 2>&1 {never}<&- {output}<&- &
  pid=$!
  set +m
}

carry_out() {
  local claimed=$1 run epoch timeout started output code=0 why status answer
  run=$(jq -r .run_id <<<"$claimed") epoch=$(jq -r .epoch <<<"$claimed")
  timeout=$(jq -r '.timeout_secs // ""' <<<"$claimed")
  log "claimed run $run"
  # The first event starts the run.
  started=$(jq -nc --arg worker "$name" \
    '[{level: "info", message: "Command started", payload: {worker: $worker}, key: "started"}]')
  if ! append "$started"; then
    log "run $run was not begun: it belongs to others by now, or the server did not say"
    return 0
  fi

  rm -f "$work/stop" "$work/output"
  : >"$work/tail"
  mkfifo -m 600 "$work/output"
  exec {output}< <(events <"$work/output")
  start_command
  keep "$timeout" &
  beater=$!
  if [[ -n $stopping ]]; then stop shutdown; fi
  follow "$output"
  exec {output}<&-
  # A signal to this worker interrupts `wait`; a second call returns the same exit code.
  for _ in 1 2 3 4 5; do
    code=0
    { wait "$pid" || code=$?; } 2>/dev/null
    is_running || break
  done
  signal KILL
  { kill "$beater" && wait "$beater"; } 2>/dev/null || true
  pid='' beater=''

  why=$(told)
  case $why in
    lost)
      log "run $run belongs to others by now; its command was stopped, and nothing more is written"
      return 0
      ;;
    cancelled) status=cancelled ;;
    timed-out) status=failed ;;
    *) if ((code == 0)); then status=success; else status=failed; fi ;;
  esac
  if [[ $why == shutdown && $status == failed ]]; then
    log "run $run was interrupted; another worker carries its request on when its lease is over"
    return 0
  fi
  answer=0
  finish "$status" "$(metadata "$code" "$why")" || answer=$?
  case $answer in
    0) log "run $run ended: $status" ;;
    9) log "run $run belongs to others by now; its end ($status) changed nothing" ;;
    *) log "the end of run $run ($status) was not recorded" ;;
  esac
}

# --- the loop

on_stop() {
  stopping=yes
  if is_running; then stop shutdown; fi
}

on_exit() {
  if is_running; then signal KILL; fi
  if [[ -n $beater ]]; then kill "$beater" 2>/dev/null || true; fi
  rm -rf "$work"
}

trap on_stop TERM INT
trap on_exit EXIT

# Checks the address and the token before the first claim.
ask 30 GET /v1/info <<<'' >/dev/null || fail 1 "the server cannot be used"
log "worker $name waits for runs"
request=''
while [[ -z $stopping ]]; do
  # Keep the request id until a claim returns runs: a retry returns runs whose first response was lost.
  request=${request:-$(</proc/sys/kernel/random/uuid)}
  code=0
  claimed=$(claim "$request" "$([[ -n $once$drain ]] && echo 0 || echo "$wait_secs")") || code=$?
  if ((code == 75)); then
    pause 0.5
    continue
  elif ((code != 0)); then
    fail 1 "runs cannot be claimed"
  fi
  if [[ -n $claimed ]]; then
    request=''
    carry_out "$claimed"
    [[ -z $once ]] || break
  elif [[ -n $once ]] || [[ -n $drain && $(left) == 0 ]]; then
    break
  elif [[ -n $drain ]]; then
    pause 0.5
  fi
done
log "worker $name ends"
